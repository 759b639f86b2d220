import "./fleet.css";

import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactElement, useCallback, useDeferredValue, useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";

import { KINDS, PHASES, toneOf } from "../api/kinds.ts";
import type { Counts, Summary } from "../api/types.ts";
import { Icon, ToneSign } from "../shell/icons.tsx";
import { count, Example, kindLabel, useTitle } from "../shell/parts.tsx";
import { Failure, Loading, Notice, State } from "../shell/states.tsx";
import { type FleetSearch, matches, NO_PHASE, phaseCounts, total } from "./filter.ts";
import { FleetTable } from "./FleetTable.tsx";
import { sorted } from "./order.ts";
import { fleet } from "./store.ts";
import { toggled } from "./urlState.ts";

const EXAMPLE = `kubectl apply -f - <<EOF
apiVersion: agents.recif.dev/v1
kind: Agent
metadata:
  name: my-agent
spec:
  name: My Agent
  framework: corail
EOF`;

export function FleetPage(): ReactElement {
  useTitle("Fleet");
  const search = useSearch({ from: "/" });
  const navigate = useNavigate({ from: "/" });
  const view = useSyncExternalStore(fleet.watch, fleet.view);
  const deferred = useDeferredValue(search);
  const rows = useMemo(
    () => sorted(view.rows.filter(matches(deferred)), deferred.sort, deferred.order ?? "asc"),
    [view.rows, deferred],
  );
  const change = useCallback(
    (next: Partial<Record<keyof FleetSearch, FleetSearch[keyof FleetSearch] | undefined>>): void => {
      void navigate({ search: (before) => ({ ...before, ...next }) as FleetSearch, replace: true });
    },
    [navigate],
  );
  const sort = useCallback((next: Pick<FleetSearch, "sort" | "order">) => change({ sort: undefined, order: undefined, ...next }), [change]);
  const everything = view.rows.length;
  const filtered = Boolean(search.q || search.kind || search.phase || search.namespace || search.attention);

  if (!everything && view.error) {
    return (
      <div className="page">
        <h1>Fleet</h1>
        <Failure error={view.error} retry={() => void fleet.read()} what="the fleet" />
      </div>
    );
  }
  return (
    <div className="page full">
      <div className="page-head">
        <h1>Fleet</h1>
        <span className="muted nums" data-testid="total">
          {!everything && !view.complete ? "Reading …" : `${count(everything)} ${everything === 1 ? "object" : "objects"}`}
          {!view.complete && view.total !== null && everything < view.total && ` of ${count(view.total)}`}
        </span>
      </div>
      {everything > 0 && (
        <>
          <Kinds counts={view.counts} search={search} change={(kind) => change({ kind })} />
          <div className="toolbar">
            <Search value={search.q} change={(q) => change({ q })} />
            <Namespaces rows={view.rows} value={search.namespace} change={(namespace) => change({ namespace })} />
            <Attention rows={view.rows} search={search} change={(attention) => change({ attention })} />
            <Phases counts={view.counts} search={search} change={(phase) => change({ phase })} />
            {filtered && (
              <Link to="/" className="button quiet" search={{}} replace>
                <Icon name="close" />
                Clear
              </Link>
            )}
          </div>
        </>
      )}
      {view.error && (
        <Notice tone="warn">
          {view.error.message}{" "}
          <button type="button" className="button" onClick={() => void fleet.read()}>
            Try again
          </button>
        </Notice>
      )}
      {rows.length > 0 ? (
        <FleetTable rows={rows} search={search} sort={sort} />
      ) : everything > 0 && (view.complete || view.error) ? (
        <State
          icon="search"
          title="Nothing matches"
          action={
            <Link to="/" className="button" search={{}}>
              Show everything
            </Link>
          }
        >
          None of {count(everything)} objects matches all filters.
        </State>
      ) : view.complete ? (
        <State icon="empty" title="An empty fleet">
          There are no objects of Récif in the namespaces that you may see. Start with an agent:
          <Example text={EXAMPLE} />
        </State>
      ) : (
        <Loading lines={10} label="Reading the fleet" />
      )}
    </div>
  );
}

/** One button per kind, with the number of objects and their phases. */
function Kinds({ counts, search, change }: { counts: Counts; search: FleetSearch; change: (kind: string[] | undefined) => void }): ReactElement {
  const unknown = Object.keys(counts).filter((kind) => !KINDS.some((known) => known.kind === kind));
  const kinds = [...KINDS.map((kind) => kind.kind).filter((kind) => counts[kind] || search.kind?.includes(kind)), ...unknown];
  return (
    <div className="kinds" role="group" aria-label="Kinds">
      {kinds.map((kind) => {
        const phases = counts[kind] ?? {};
        const sum = total(phases);
        // One that is stopped is as it should be.
        const good = (phases.Running ?? 0) + (phases.Available ?? 0) + (phases.Terminated ?? 0);
        return (
          <button
            key={kind}
            type="button"
            className="kind"
            aria-pressed={search.kind?.includes(kind) ?? false}
            onClick={() => change(toggled(search.kind, kind))}
          >
            <span className="muted small">{kindLabel(kind)}</span>
            <span className="kind-count nums">{count(sum)}</span>
            <Share phases={phases} sum={sum} />
            {sum > good && <span className="visually-hidden">{`, ${sum - good} not as they should be`}</span>}
          </button>
        );
      })}
    </div>
  );
}

/** Phases of a kind as parts of a bar. */
function Share({ phases, sum }: { phases: Record<string, number>; sum: number }): ReactElement {
  const tones = new Map<string, number>();
  for (const phase of [...PHASES, NO_PHASE]) {
    const here = phases[phase];
    if (here) tones.set(toneOf(phase), (tones.get(toneOf(phase)) ?? 0) + here);
  }
  return (
    <span className="share" aria-hidden="true">
      {[...tones].map(([tone, here]) => (
        <span key={tone} className={`tone-${tone}`} style={{ flexGrow: here / sum }} />
      ))}
    </span>
  );
}

/** Filter for what is not as it should be; nothing if all is, unless it is chosen. */
function Attention(props: { rows: readonly Summary[]; search: FleetSearch; change: (attention: true | undefined) => void }): ReactElement | null {
  const { rows, search, change } = props;
  const sum = useMemo(() => rows.reduce((sum, row) => sum + (row.why !== null ? 1 : 0), 0), [rows]);
  if (!sum && !search.attention) return null;
  return (
    <button type="button" className="chip tone-warn" aria-pressed={search.attention ?? false} onClick={() => change(search.attention ? undefined : true)}>
      <Icon name="warn" size={14} />
      Not as it should be
      <span className="nums">{count(sum)}</span>
    </button>
  );
}

function Phases({ counts, search, change }: { counts: Counts; search: FleetSearch; change: (phase: string[] | undefined) => void }): ReactElement {
  const here = phaseCounts(counts, search.kind);
  const names = [...PHASES, NO_PHASE].filter((phase) => here[phase] || search.phase?.includes(phase));
  return (
    <div className="chips" role="group" aria-label="Phases">
      {names.map((phase) => (
        <button
          key={phase}
          type="button"
          className={`chip tone-${toneOf(phase)}`}
          aria-pressed={search.phase?.includes(phase) ?? false}
          onClick={() => change(toggled(search.phase, phase))}
        >
          <ToneSign tone={toneOf(phase)} size={14} />
          {phase === NO_PHASE ? "No phase" : phase}
          <span className="nums">{count(here[phase] ?? 0)}</span>
        </button>
      ))}
    </div>
  );
}

function Search({ value, change }: { value: string | undefined; change: (q: string | undefined) => void }): ReactElement {
  const [text, setText] = useState(value ?? "");
  const field = useRef<HTMLInputElement>(null);
  const sent = useRef(value ?? "");
  // The address may also change by the browser's buttons.
  useEffect(() => {
    if ((value ?? "") === sent.current) return;
    sent.current = value ?? "";
    setText(sent.current);
  }, [value]);
  useEffect(() => {
    const focus = (event: KeyboardEvent): void => {
      const typing = event.target instanceof HTMLElement && event.target.closest("input, textarea, select");
      if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || typing) return;
      event.preventDefault();
      field.current?.focus();
    };
    document.addEventListener("keydown", focus);
    return () => document.removeEventListener("keydown", focus);
  }, []);
  const type = (next: string): void => {
    setText(next);
    sent.current = next;
    change(next || undefined);
  };
  return (
    <div className="search">
      <Icon name="search" />
      <input
        ref={field}
        className="input"
        type="search"
        placeholder="Search names, models, reasons"
        aria-label="Search the fleet"
        aria-keyshortcuts="/"
        value={text}
        onChange={(event) => type(event.target.value)}
      />
      {!text && (
        <kbd aria-hidden="true" title="Press / to search">
          /
        </kbd>
      )}
    </div>
  );
}

function Namespaces(props: { rows: readonly { namespace: string }[]; value: string | undefined; change: (namespace: string | undefined) => void }): ReactElement {
  const { rows, value, change } = props;
  const names = useMemo(() => [...new Set(rows.map((row) => row.namespace))].sort(), [rows]);
  const options = value && !names.includes(value) ? [value, ...names] : names;
  return (
    <select className="input namespaces" aria-label="Namespace" value={value ?? ""} onChange={(event) => change(event.target.value || undefined)}>
      <option value="">All namespaces</option>
      {options.map((name) => (
        <option key={name}>{name}</option>
      ))}
    </select>
  );
}
