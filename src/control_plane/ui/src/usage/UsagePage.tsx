import "./usage.css";

import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { lazy, type ReactElement, Suspense, useMemo } from "react";

import { usageQuery } from "../api/queries.ts";
import type { UsageItem } from "../api/types.ts";
import { duration } from "../object/timeline.ts";
import { Card, count, useTitle } from "../shell/parts.tsx";
import { Failure, Loading, Notice, State } from "../shell/states.tsx";
import { chartOf, costText, currenciesOf, GROUPS, labelOf, MEASURES, SPANS, stepOf } from "./usage.ts";

const UsageChart = lazy(() => import("./UsageChart.tsx"));

/** Tokens and cost of models: a chart over time, and a table of the sums. */
export function UsagePage(): ReactElement {
  useTitle("Usage");
  const search = useSearch({ from: "/usage" });
  const navigate = useNavigate({ from: "/usage" });
  const { group = "agents", span = "24h", measure = "tokens" } = search;
  const sums = useQuery(usageQuery(group, span, null));
  const steps = useQuery(usageQuery(group, span, stepOf(span)));
  const items = sums.data?.items ?? [];
  const currencies = currenciesOf(items);
  const currency = measure === "cost" ? (currencies[0] ?? "") : null;
  const chart = useMemo(() => steps.data && chartOf(steps.data, stepOf(span), currency), [steps.data, span, currency]);
  const unpriced = items.reduce((sum, item) => sum + item.unpriced, 0);
  const drawn = measure === "cost" ? `Cost${currency ? ` in ${currency}` : ""}` : "Tokens";
  return (
    <div className="page">
      <div className="page-head">
        <h1>Usage</h1>
        <span className="muted grow">Tokens that models used, and what they cost</span>
      </div>
      <div className="row wrap">
        <Choice label="Sum by" value={group} values={GROUPS} choose={(value) => void navigate({ search: (before) => ({ ...before, group: value }), replace: true })} />
        <Choice label="Time" value={span} values={SPANS} choose={(value) => void navigate({ search: (before) => ({ ...before, span: value }), replace: true })} />
        <Choice label="Chart of" value={measure} values={MEASURES} choose={(value) => void navigate({ search: (before) => ({ ...before, measure: value }), replace: true })} />
      </div>
      {sums.error && items.length > 0 && <Notice tone="warn">The sums are not up to date: {sums.error.message}</Notice>}
      {items.length ? (
        <>
          <Card title={`${drawn} per ${stepOf(span)}`}>
            {chart?.series.length ? (
              <Suspense fallback={<Loading lines={4} />}>
                <UsageChart chart={chart} label={`${drawn} per ${stepOf(span)}: ${chart.series.map((series) => series.label).join(", ")}`} />
              </Suspense>
            ) : steps.error ? (
              <p className="muted">{steps.error.message}</p>
            ) : steps.isPending ? (
              <Loading lines={4} />
            ) : (
              <p className="muted">{measure === "cost" ? "No model that was used has a price: set spec.price of its Model." : "No tokens were counted."}</p>
            )}
          </Card>
          <UsageTable items={items} />
          {unpriced > 0 && <p className="small muted">{`${count(unpriced)} tokens have no cost: set spec.price of their Models.`}</p>}
          {sums.data?.truncated && <p className="small muted">There are more: these are the ones with the most tokens.</p>}
        </>
      ) : sums.isPending ? (
        <Loading lines={10} />
      ) : sums.error ? (
        <Failure error={sums.error} retry={() => void sums.refetch()} what="the usage" />
      ) : (
        <State icon="usage" title="No model was asked">
          {`Nothing was counted for ${group} in the last ${span}. Requests to models appear here within seconds.`}
        </State>
      )}
    </div>
  );
}

interface ChoiceProps<T extends string> {
  label: string;
  value: T;
  values: readonly T[];
  choose: (value: T) => void;
}

function Choice<T extends string>({ label, value, values, choose }: ChoiceProps<T>): ReactElement {
  const chosen = (text: string): void => {
    const found = values.find((one) => one === text);
    if (found) choose(found);
  };
  return (
    <label className="row">
      <span className="muted small">{label}</span>
      <select className="input" style={{ width: "auto" }} value={value} onChange={(event) => chosen(event.target.value)}>
        {values.map((one) => (
          <option key={one} value={one}>
            {one}
          </option>
        ))}
      </select>
    </label>
  );
}

export function UsageTable({ items }: { items: readonly UsageItem[] }): ReactElement {
  return (
    <div className="usage-scroll" tabIndex={0} role="region" aria-label="Sums">
      <table className="usage-table">
        <thead>
          <tr>
            {["Name", "Calls", "Failed", "Input", "Cached", "Output", "Cost", "95 % within"].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <Row key={labelOf(item)} item={item} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ item }: { item: UsageItem }): ReactElement {
  const mark = item.estimated > 0 ? "~" : "";
  const title = mark && `${count(item.estimated)} tokens are estimated: the provider did not report them`;
  return (
    <tr>
      <th scope="row">{labelOf(item)}</th>
      <td>{count(item.calls)}</td>
      <td>{count(item.failed)}</td>
      <td title={title}>{`${mark}${count(item.input)}`}</td>
      <td>{count(item.cacheRead)}</td>
      <td title={title}>{`${mark}${count(item.output)}`}</td>
      <td>{costText(item)}</td>
      <td>{item.p95Ms === null || item.p95Ms === undefined ? "–" : duration(item.p95Ms)}</td>
    </tr>
  );
}
