/**
 * Virtualized table: only the visible rows are in the document.
 *
 * A row has one of two heights, known in advance: with the sentence about its problem, or without. So nothing is measured while
 * scrolling. Arrow keys move from row to row.
 */

import { type ColumnDef, rowSortingFeature, tableFeatures, useTable } from "@tanstack/react-table";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type KeyboardEvent, memo, type PointerEvent, type ReactElement, useCallback, useMemo, useRef } from "react";

import type { Summary } from "../api/types.ts";
import { Icon } from "../shell/icons.tsx";
import { PHONE, useNarrow } from "../shell/narrow.ts";
import type { FleetSearch } from "./filter.ts";
import { hint, Row } from "./FleetRow.tsx";
import type { SortKey } from "./order.ts";
import { nextSort } from "./urlState.ts";

const features = tableFeatures({ rowSortingFeature });
const NO_ROWS: Summary[] = [];

/** Columns in the order of a row's cells. */
const COLUMNS: ColumnDef<typeof features, Summary>[] = [
  { id: "name", header: "Name" },
  { id: "phase", header: "Phase" },
  { id: "kind", header: "Kind" },
  { id: "namespace", header: "Namespace" },
  { id: "pods", header: "Pods" },
  { id: "details", header: "Model / tools", enableSorting: false },
  { id: "since", header: "In phase" },
  { id: "age", header: "Age" },
  // Below the others, across the whole width; rows without a problem have no such cell.
  { id: "why", header: "Why it is not as it should be", enableSorting: false },
];

type Sort = (next: Pick<FleetSearch, "sort" | "order">) => void;

export function FleetTable({ rows, search, sort }: { rows: readonly Summary[]; search: FleetSearch; sort: Sort }): ReactElement {
  const narrow = useNarrow(PHONE);
  const scroller = useRef<HTMLDivElement>(null);
  // A new function makes the virtualizer compute all positions again, so it changes with everything on which heights depend.
  const getItemKey = useCallback((index: number) => rows[index]?.uid ?? index, [rows, narrow]);
  const estimateSize = (index: number): number => (rows[index]?.why ? 62 : 42) + (narrow ? 18 : 0);
  const getScrollElement = useCallback(() => scroller.current, []);
  const virtual = useVirtualizer({ count: rows.length, getScrollElement, estimateSize, getItemKey, overscan: 8 });

  const focus = (index: number): void => {
    const at = Math.min(Math.max(index, 0), rows.length - 1);
    virtual.scrollToIndex(at, { align: "auto" });
    requestAnimationFrame(() => scroller.current?.querySelector<HTMLElement>(`[data-index="${at}"] a`)?.focus({ preventScroll: true }));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const here = Number(rowOf(event.target)?.dataset.index ?? -1);
    const to = { ArrowDown: here + 1, ArrowUp: here - 1, PageDown: here + 12, PageUp: here - 12, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    focus(to);
  };
  const onPointerOver = (event: PointerEvent): void => {
    const row = rowOf(event.target);
    const object = rows[Number(row?.dataset.index ?? -1)];
    if (row && object) row.title = hint(object);
  };

  return (
    <div
      className="table"
      ref={scroller}
      role="table"
      aria-label="Objects"
      aria-rowcount={rows.length + 1}
      onKeyDown={onKeyDown}
      // Focusable, so that it can be scrolled by keyboard.
      tabIndex={0}
    >
      <Head search={search} sort={sort} />
      <div role="rowgroup" className="table-body" style={{ height: virtual.getTotalSize() }} onPointerOver={onPointerOver}>
        {virtual.getVirtualItems().map((item) => {
          const row = rows[item.index];
          return row && <Row key={item.key} object={row} index={item.index} start={item.start} size={item.size} />;
        })}
      </div>
    </div>
  );
}

function rowOf(target: EventTarget): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>("[data-index]") : null;
}

/** Memoized: not rendered again while the table scrolls. */
const Head = memo(function Head({ search, sort }: { search: FleetSearch; sort: Sort }): ReactElement {
  const sorting = useMemo(() => (search.sort ? [{ id: search.sort, desc: search.order === "desc" }] : []), [search.sort, search.order]);
  const table = useTable({
    features,
    columns: COLUMNS,
    // The table instance only manages the columns and their sorting. The rows come filtered and sorted, and wrapping thousands
    // of them for each change would cost more than all the rest.
    data: NO_ROWS,
    manualSorting: true,
    state: { sorting },
  });
  return (
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
  );
});
