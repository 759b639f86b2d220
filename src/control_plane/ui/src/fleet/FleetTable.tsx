/**
 * The rows, of which only those in sight are in the document.
 *
 * A row has one of two heights, known beforehand: with the sentence that says why it is not as it should be, or without. So
 * nothing is measured while scrolling. Arrow keys go from row to row.
 */

import { type ColumnDef, rowSortingFeature, tableFeatures, useTable } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, memo, type ReactElement, useCallback, useEffect, useMemo, useRef, useState } from "react";

import type { Summary } from "../api/types.ts";
import { Icon } from "../shell/icons.tsx";
import { Ago, ObjectLink, Phase } from "../shell/parts.tsx";
import type { FleetSearch } from "./filter.ts";
import { keyOf } from "./merge.ts";
import type { SortKey } from "./order.ts";
import { nextSort } from "./urlState.ts";

const features = tableFeatures({ rowSortingFeature });
type Column = ColumnDef<typeof features, Summary>;
const NO_ROWS: Summary[] = [];

/** Of these the table has columns of its own. */
const TOLD = new Set(["phase", "age", "replicas", "ready", "available", "reason", "status", "endpoint"]);

/** What the kind's own columns say, in a few words. */
export function details(object: Summary): string {
  return Object.entries(object.columns)
    .filter(([name, value]) => value && !TOLD.has(name.toLowerCase()))
    .map(([name, value]) => `${name} ${value}`)
    .join(" · ");
}

const COLUMNS: Column[] = [
  {
    id: "name",
    header: "Name",
    cell: ({ row: { original } }) => <ObjectLink {...original} className="row-name truncate" title={original.name} />,
  },
  { id: "phase", header: "Phase", cell: ({ row: { original } }) => <Phase phase={original.phase} /> },
  { id: "kind", header: "Kind", cell: ({ row: { original } }) => original.kind },
  {
    id: "namespace",
    header: "Namespace",
    cell: ({ row: { original } }) => (
      <span className="truncate" title={original.namespace}>
        {original.namespace}
      </span>
    ),
  },
  {
    id: "pods",
    header: "Pods",
    cell: ({ row: { original } }) =>
      original.replicas ? (
        <span className="nums" title={`${original.replicas.ready} of ${original.replicas.desired} Pods ready`}>
          {original.replicas.ready}/{original.replicas.desired}
        </span>
      ) : (
        <span className="muted">–</span>
      ),
  },
  {
    id: "details",
    header: "Details",
    enableSorting: false,
    cell: ({ row: { original } }) => {
      const text = details(original);
      return (
        <span className="muted truncate" title={text}>
          {text}
        </span>
      );
    },
  },
  { id: "since", header: "In phase", cell: ({ row: { original } }) => <Ago at={original.since} /> },
  { id: "age", header: "Age", cell: ({ row: { original } }) => <Ago at={original.createdAt} /> },
  // Below the others, as wide as all of them; rows without it have no such cell.
  {
    id: "why",
    header: "Why it is not as it should be",
    enableSorting: false,
    cell: ({ row: { original } }) => (
      <span className="truncate" title={original.why ?? undefined}>
        {original.why}
      </span>
    ),
  },
];

const NARROW = "(max-width: 760px)";

function useNarrow(): boolean {
  const [narrow, setNarrow] = useState(() => matchMedia(NARROW).matches);
  useEffect(() => {
    const media = matchMedia(NARROW);
    const look = (): void => setNarrow(media.matches);
    media.addEventListener("change", look);
    return () => media.removeEventListener("change", look);
  }, []);
  return narrow;
}

export function FleetTable(props: {
  rows: readonly Summary[];
  search: FleetSearch;
  sort: (next: Pick<FleetSearch, "sort" | "order">) => void;
}): ReactElement {
  const { rows, search, sort } = props;
  const narrow = useNarrow();
  const scroller = useRef<HTMLDivElement>(null);
  const sorting = useMemo(() => (search.sort ? [{ id: search.sort, desc: search.order === "desc" }] : []), [search.sort, search.order]);
  const table = useTable({
    features,
    columns: COLUMNS,
    // It has the columns and their order; the rows come filtered and sorted, and wrapping thousands of them again for each
    // change would cost more than all the rest.
    data: NO_ROWS,
    manualSorting: true,
    state: { sorting },
  });
  // The same functions while the rows are the same: with others the place of every row is reckoned anew.
  const estimateSize = useCallback((index: number) => (rows[index]?.why ? 62 : 42) + (narrow ? 18 : 0), [rows, narrow]);
  const getItemKey = useCallback((index: number) => rows[index]?.uid ?? index, [rows]);
  const getScrollElement = useCallback(() => scroller.current, []);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement, estimateSize, getItemKey, overscan: 12 });
  // Heights change with the rows and with the width of the window.
  useEffect(() => virtual.measure(), [virtual, rows, narrow]);

  const focus = (index: number): void => {
    const at = Math.min(Math.max(index, 0), rows.length - 1);
    virtual.scrollToIndex(at, { align: "auto" });
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-index="${at}"] a`)?.focus({ preventScroll: true }));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const here = Number((event.target as HTMLElement).closest<HTMLElement>("[data-index]")?.dataset.index ?? -1);
    const to = { ArrowDown: here + 1, ArrowUp: here - 1, PageDown: here + 12, PageUp: here - 12, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    focus(to);
  };

  return (
    <div
      className="table"
      ref={scroller}
      role="table"
      aria-label="Objects"
      aria-rowcount={rows.length + 1}
      onKeyDown={onKeyDown}
      // Focusable, so that it can be scrolled by keys.
      tabIndex={0}
    >
      <div className="table-head" role="rowgroup">
        <div role="row" aria-rowindex={1} className="cells">
          {table.getFlatHeaders().map(({ column, id }) => {
            const direction = column.getIsSorted();
            const label = column.columnDef.header as string;
            return (
              <div
                key={id}
                role="columnheader"
                className={`cell-${id}`}
                aria-sort={direction === "asc" ? "ascending" : direction === "desc" ? "descending" : undefined}
              >
                {id === "why" ? (
                  <span className="visually-hidden">{label}</span>
                ) : column.columnDef.enableSorting === false ? (
                  label
                ) : (
                  <button type="button" onClick={() => sort(nextSort(search, id as SortKey))}>
                    {label}
                    {direction && <Icon name={direction === "asc" ? "up" : "down"} size={12} />}
                  </button>
                )}
              </div>
            );
          })}
        </div>
      </div>
      <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index];
          return row && <Row key={item.key} object={row} index={item.index} start={item.start} size={item.size} />;
        })}
      </div>
    </div>
  );
}

/** A row; what it shows depends on nothing but its object and place. */
const Row = memo(function Row({ object, index, start, size }: { object: Summary; index: number; start: number; size: number }): ReactElement {
  return (
    <div
      role="row"
      aria-rowindex={index + 2}
      data-index={index}
      data-key={keyOf(object)}
      className="cells table-row"
      style={{ height: size, transform: `translateY(${start}px)` }}
    >
      {COLUMNS.filter((column) => column.id !== "why" || object.why).map((column) => (
        <div key={column.id} role="cell" className={`cell-${column.id}`}>
          {cell(column, object)}
        </div>
      ))}
    </div>
  );
});

function cell(column: Column, original: Summary): ReactElement {
  const draw = column.cell as (context: { row: { original: Summary } }) => ReactElement;
  return draw({ row: { original } });
}
