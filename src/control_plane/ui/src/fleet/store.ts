/**
 * The fleet as the pages see it: read once, page by page, then kept by the live stream.
 *
 * What came is shown in one go, at most each 100 ms, so that a storm of changes costs no more than ten renderings a second.
 */

import { ApiError, get, query } from "../api/client.ts";
import { live } from "../api/live.ts";
import type { Counts, FleetPage, Summary } from "../api/types.ts";
import { countsOf } from "./filter.ts";
import { Fleet, keyOf } from "./merge.ts";
import { byDefault, withChanged } from "./order.ts";

const PAGE = 1000;
const PAUSE_MS = 100;
/** Up to so many changes are put into the rows one by one. */
const FEW = 200;

export interface FleetView {
  /** In the default order. */
  rows: readonly Summary[];
  counts: Counts;
  /** All pages were read at least once. */
  complete: boolean;
  /** How many there are to be read, once known. */
  total: number | null;
  error: ApiError | null;
}

const NOTHING: FleetView = { rows: [], counts: {}, complete: false, total: null, error: null };

class FleetStore {
  #fleet = new Fleet();
  #view: FleetView = NOTHING;
  #watchers = new Set<() => void>();
  #timer: ReturnType<typeof setTimeout> | null = null;
  #shownAt = 0;
  #reading: AbortController | null = null;

  constructor() {
    live.listen({
      change: (change) => this.#fleet.change(change) && this.#later(),
      reset: () => void this.read(),
      // What could not be read while the connection was gone.
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

  /** Reads all pages anew. */
  async read(): Promise<void> {
    this.#reading?.abort();
    const reading = (this.#reading = new AbortController());
    this.#fleet.begin();
    try {
      let next: string | null | undefined;
      do {
        const page = await get<FleetPage>(`/fleet${query({ limit: PAGE, continue: next })}`, reading.signal);
        if (reading.signal.aborted) return;
        this.#fleet.page(page.items);
        next = page.continue;
        this.#view = { ...this.#view, total: page.total, error: null };
        this.#later();
      } while (next);
      this.#fleet.finish();
      this.#show({ complete: true, error: null });
    } catch (error) {
      if (reading.signal.aborted) return;
      const problem = error instanceof ApiError ? error : new ApiError(0, String(error));
      this.#show({ error: problem });
    }
  }

  /** Forgets everything: somebody else signed in. */
  clear(): void {
    this.#reading?.abort();
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
    const rows = this.#rows();
    this.#view = { ...this.#view, rows, counts: rows === this.#view.rows ? this.#view.counts : countsOf(rows), ...more };
    for (const watcher of this.#watchers) watcher();
  }
}

export const fleet = new FleetStore();
