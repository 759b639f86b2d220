import "./activity.css";

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactElement, type UIEvent, useCallback, useEffect, useMemo, useRef, useState } from "react";

import { get, query } from "../api/client.ts";
import { KINDS } from "../api/kinds.ts";
import { live } from "../api/live.ts";
import { historyQuery } from "../api/queries.ts";
import type { Page, Transition } from "../api/types.ts";
import { duration } from "../object/timeline.ts";
import { Icon } from "../shell/icons.tsx";
import { Ago, fullTime, localTime, ObjectLink, Phase, useTitle } from "../shell/parts.tsx";
import { Failure, Loading, Notice, State } from "../shell/states.tsx";
import { grouped, KEPT, merged, newer, type Repeated, troubleOf, wanted } from "./feed.ts";

const PAGE = 200;
/** Pixels before the end of the list at which the next page is loaded, about 30 rows. */
const AHEAD = 2000;

export function ActivityPage(): ReactElement {
  useTitle("Activity");
  const search = useSearch({ from: "/activity" });
  const navigate = useNavigate({ from: "/activity" });
  const feed = useFeed();
  const trouble = troubleOf(useQuery(historyQuery()).data);
  const shown = useMemo(() => feed.list.filter(wanted(search.kind, search.q)), [feed.list, search.kind, search.q]);
  const groups = useMemo(() => grouped(shown), [shown]);
  return (
    <div className="page full">
      <div className="page-head">
        <h1>Activity</h1>
        <span className="muted grow">Every move and every wait of the fleet, the latest first</span>
        <button type="button" className="button" onClick={feed.toggle} aria-pressed={feed.paused}>
          <Icon name={feed.paused ? "play" : "pause"} />
          {feed.paused ? `Resume${feed.held ? ` (${feed.held} new)` : ""}` : "Pause"}
        </button>
      </div>
      <div className="row wrap">
        <input
          className="input activity-search"
          type="search"
          placeholder="Search names, phases, reasons"
          aria-label="Search the activity"
          value={search.q ?? ""}
          onChange={(event) => void navigate({ search: (before) => ({ ...before, q: event.target.value }), replace: true })}
        />
        <select
          className="input"
          style={{ width: "auto" }}
          aria-label="Kind"
          value={search.kind?.[0] ?? ""}
          onChange={(event) => void navigate({ search: (before) => ({ ...before, kind: event.target.value ? [event.target.value] : [] }), replace: true })}
        >
          <option value="">All kinds</option>
          {KINDS.map((kind) => (
            <option key={kind.kind} value={kind.kind}>
              {kind.label}
            </option>
          ))}
        </select>
      </div>
      {trouble && <Notice tone="warn">{trouble}</Notice>}
      {feed.error && feed.list.length > 0 && <Notice tone="warn">What happened before cannot be read: {feed.error.message}</Notice>}
      {shown.length ? (
        <List list={groups} more={feed.more} loading={feed.loading} />
      ) : feed.loading ? (
        <Loading lines={10} />
      ) : feed.error ? (
        <Failure error={feed.error} retry={feed.more ?? undefined} what="the activity" />
      ) : feed.list.length ? (
        <State icon="search" title="Nothing matches" action={feed.more && <button type="button" className="button" onClick={feed.more}>Look further back</button>}>
          None of the last {feed.list.length} transitions matches.
        </State>
      ) : (
        <State icon="activity" title="Quiet">
          Nothing moved since the history began. As soon as something does, it is here.
        </State>
      )}
    </div>
  );
}

interface Feed {
  list: readonly Transition[];
  loading: boolean;
  error: Error | null;
  /** Loads the next page of older transitions; null when there is none. */
  more: (() => void) | null;
  paused: boolean;
  /** Number of transitions that came during the pause. */
  held: number;
  toggle: () => void;
}

function useFeed(): Feed {
  const [list, setList] = useState<readonly Transition[]>([]);
  // Snapshot of the list at the moment of the pause; the list itself goes on behind it.
  const [frozen, setFrozen] = useState<readonly Transition[] | null>(null);
  const [next, setNext] = useState<string | null>("");
  const [loading, setLoading] = useState(true);
  const [error, setError] = useState<Error | null>(null);

  const read = useCallback(async (before: string | null, signal?: AbortSignal): Promise<void> => {
    setLoading(true);
    try {
      const page = await get<Page<Transition>>(`/transitions${query({ limit: PAGE, before })}`, signal);
      setList((known) => merged(known, page.items));
      if (before) setFrozen((known) => known && merged(known, page.items));
      setNext((known) => (before || known === "" ? (page.continue ?? null) : known));
      setError(null);
    } catch (problem) {
      if (signal?.aborted) return;
      setError(problem instanceof Error ? problem : new Error(String(problem)));
    }
    setLoading(false);
  }, []);

  useEffect(() => {
    const left = new AbortController();
    void read(null, left.signal);
    return () => left.abort();
  }, [read]);

  useEffect(() => {
    let waiting: Transition[] = [];
    let timer: ReturnType<typeof setTimeout> | null = null;
    const show = (): void => {
      timer = null;
      const fresh = waiting;
      waiting = [];
      setList((known) => merged(known, fresh));
    };
    const forget = live.listen({
      transition: (transition) => {
        waiting.push(transition);
        timer ??= setTimeout(show, 100);
      },
      // Loads the transitions that the stream missed.
      reset: () => void read(null),
    });
    return () => {
      forget();
      if (timer) clearTimeout(timer);
    };
  }, [read]);

  const toggle = (): void => setFrozen(frozen ? null : list);
  // At the limit the oldest transitions are dropped, so the next page would not continue where the list ends.
  const more = next === null || list.length >= KEPT ? null : () => void read(next || null);
  return { list: frozen ?? list, loading, error, more, paused: frozen !== null, held: frozen ? newer(list, frozen) : 0, toggle };
}

interface ListProps {
  list: readonly Repeated[];
  more: (() => void) | null;
  loading: boolean;
}

/** Reports whether what a scroller shows is near the end of its content: that is when the next page is loaded. */
export function isNearEnd({ scrollTop, clientHeight, scrollHeight }: Pick<HTMLElement, "scrollTop" | "clientHeight" | "scrollHeight">): boolean {
  return scrollHeight - scrollTop - clientHeight < AHEAD;
}

/**
 * Virtual list that loads at most one page per scroll event: a page of equal steps adds no row, and would otherwise be
 * followed by the next one, to the end of the history. Where no scrolling leads further, the button does.
 */
export function List({ list, more, loading }: ListProps): ReactElement {
  const scroller = useRef<HTMLDivElement>(null);
  const getItemKey = useCallback((index: number) => `${list[index]?.oldest.uid} ${list[index]?.oldest.seq}`, [list]);
  const virtual = useVirtualizer({
    count: list.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 64,
    getItemKey,
    overscan: 10,
  });
  const scrolled = (event: UIEvent<HTMLElement>): void => {
    if (!loading && isNearEnd(event.currentTarget)) more?.();
  };
  return (
    <div className="feed" ref={scroller} tabIndex={0} role="region" aria-label="Activity" onScroll={scrolled}>
      <div role="feed" aria-label="Transitions" aria-busy={loading} style={{ height: virtual.getTotalSize(), position: "relative" }}>
        {virtual.getVirtualItems().map((item) => {
          const group = list[item.index];
          return (
            group && (
              <article
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                className="transition"
                aria-posinset={item.index + 1}
                aria-setsize={more ? -1 : list.length}
                style={{ transform: `translateY(${item.start}px)` }}
              >
                <Entry group={group} />
              </article>
            )
          );
        })}
      </div>
      {more && (
        <button type="button" className="button further" disabled={loading} onClick={more}>
          Look further back
        </button>
      )}
    </div>
  );
}

function Entry({ group }: { group: Repeated }): ReactElement {
  const { newest: one, oldest, times } = group;
  const waits = one.from === one.to;
  return (
    <>
      <span className="muted small transition-time">
        <Ago at={one.at} />
        <span className="nums">{localTime(one.at, Date.now())}</span>
      </span>
      <div className="grow">
        <div className="row wrap transition-line">
          <span className="muted small">{one.kind}</span>
          <ObjectLink {...one} className="transition-name" title={`${one.namespace}/${one.name}`} />
          <span className="muted small">{one.namespace}</span>
          {times > 1 && <span className="small nums repeated" title={`${times} times since ${fullTime(oldest.at)}`}>{`×${times}`}</span>}
        </div>
        {one.reason && <p className="small muted">{one.reason}</p>}
      </div>
      <div className="transition-move">
        <span className="row">
          {!waits && one.from && <span className="muted small">{one.from} →</span>}
          <Phase phase={one.to} />
          {waits && <span className="muted small">waits</span>}
        </span>
        <span className="muted small">
          {one.action}
          {one.tookMs > 0 && `, ${duration(one.tookMs)}`}
        </span>
      </div>
    </>
  );
}
