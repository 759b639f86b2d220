/**
 * Fleet as the pages see it: read page by page, and kept up to date by the live stream.
 *
 * The reading does not wait for the stream, which may be refused or delayed: the first page, a small one, is shown as soon as
 * it is there. When the stream is open, all pages are read again, because earlier changes were missed.
 *
 * Updates are throttled to one rendering per 100 ms, so a storm of changes costs at most ten renderings a second.
 */

import { ApiError, get, query } from "../api/client.ts";
import { type Live, live } from "../api/live.ts";
import type { Counts, FleetPage, Summary } from "../api/types.ts";
import { countsOf } from "./filter.ts";
import { Fleet, keyOf } from "./merge.ts";
import { byDefault, withChanged } from "./order.ts";

/** Size of the first page: more than a screen shows. */
const FIRST = 200;
const PAGE = 1000;
const PAUSE_MS = 100;
/** Limit of the changes that are merged into the rows; above it all rows are sorted. */
const FEW = 200;

export interface FleetView {
  /** Rows in the default order. */
  rows: readonly Summary[];
  counts: Counts;
  /** True after all pages were read at least once. */
  complete: boolean;
  /** Number of objects to read, once known. */
  total: number | null;
  error: ApiError | null;
}

const NOTHING: FleetView = { rows: [], counts: {}, complete: false, total: null, error: null };

export class FleetStore {
  #fleet = new Fleet();
  #view: FleetView = NOTHING;
  #watchers = new Set<() => void>();
  #timer: ReturnType<typeof setTimeout> | null = null;
  #shownAt = 0;
  #reading: AbortController | null = null;
  /** Set when the reading has to start over. */
  #again = false;

  constructor(stream: Pick<Live, "listen"> = live) {
    stream.listen({
      change: (change) => this.#fleet.change(change) && this.#later(),
      reset: () => void this.read(),
      // Repeats a reading that failed while the connection was lost.
      connected: () => {
        const status = this.#view.error?.status;
        if (status === 0 || (status ?? 0) >= 500) void this.read();
      },
    });
  }

  readonly watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  readonly view = (): FleetView => this.#view;

  find(kind: string, namespace: string, name: string): Summary | undefined {
    return this.#fleet.objects.get(keyOf({ kind, namespace, name }));
  }

  /** Reads all pages, unless that is done or under way. */
  open(): void {
    if (!this.#reading && !this.#view.complete) void this.read();
  }

  /** Reads all pages again. A page that is under way is awaited first: it may be the first one to show. */
  async read(): Promise<void> {
    this.#again = true;
    if (this.#reading) return;
    const { signal } = (this.#reading = new AbortController());
    while (this.#again && !signal.aborted) {
      this.#again = false;
      try {
        await this.#pages(signal);
      } catch (error) {
        if (!signal.aborted && !this.#again) this.#show({ error: error instanceof ApiError ? error : new ApiError(0, String(error)) });
      }
    }
    if (!signal.aborted) this.#reading = null;
  }

  async #pages(signal: AbortSignal): Promise<void> {
    this.#fleet.begin();
    let next: string | null | undefined;
    do {
      const page = await get<FleetPage>(`/fleet${query({ limit: next ? PAGE : FIRST, continue: next })}`, signal);
      if (signal.aborted) return;
      this.#fleet.page(page.items);
      next = page.continue;
      // Until all pages are here, the control plane's counts are more complete than those of the rows.
      this.#view = { ...this.#view, total: page.total, error: null, ...(!this.#view.complete && { counts: page.counts }) };
      this.#later();
      if (this.#again) return;
    } while (next);
    this.#fleet.finish();
    this.#show({ complete: true, error: null });
  }

  /** Clears the store, for the case that another user signs in. */
  clear(): void {
    this.#reading?.abort();
    this.#reading = null;
    this.#fleet = new Fleet();
    this.#view = NOTHING;
    this.#show();
  }

  #later(): void {
    this.#timer ??= setTimeout(() => this.#show(), Math.max(0, this.#shownAt + PAUSE_MS - performance.now()));
  }

  #rows(): readonly Summary[] {
    const { objects, dirty } = this.#fleet;
    const keys = [...dirty];
    dirty.clear();
    if (keys.length > FEW) return [...objects.values()].sort(byDefault);
    if (!keys.length) return this.#view.rows;
    const changed = keys.flatMap((key) => objects.get(key) ?? []);
    const gone = new Set(keys);
    return withChanged(this.#view.rows.filter((row) => !gone.has(keyOf(row))), changed);
  }

  #show(more: Partial<FleetView> = {}): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#shownAt = performance.now();
    const before = this.#view;
    const rows = this.#rows();
    const view = { ...before, rows, ...more };
    if (view.complete && (rows !== before.rows || !before.complete)) view.counts = countsOf(rows);
    this.#view = view;
    for (const watcher of this.#watchers) watcher();
  }
}

export const fleet = new FleetStore();
