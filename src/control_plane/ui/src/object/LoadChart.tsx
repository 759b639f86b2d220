import "uplot/dist/uPlot.min.css";

import { useQuery } from "@tanstack/react-query";
import { type ReactElement, useEffect, useRef } from "react";
import UPlot from "uplot";

import { kindOfPlural } from "../api/kinds.ts";
import { loadQuery, type Name } from "../api/queries.ts";
import { fleet } from "../fleet/store.ts";
import { useIsDark } from "../shell/theme.ts";
import { add, samplesOf } from "./samples.ts";

const HEIGHT = 170;

/** Draws Pods and requests in flight, one sample a second. */
export default function LoadChart({ name }: { name: Name }): ReactElement {
  const load = useQuery(loadQuery(name));
  const dark = useIsDark();
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<UPlot | null>(null);
  const samples = samplesOf(`${name.plural}/${name.namespace}/${name.name}`);
  const kind = kindOfPlural(name.plural)?.kind ?? "";
  const ready = fleet.find(kind, name.namespace, name.name)?.replicas?.ready ?? load.data?.pods.length ?? null;

  useEffect(() => {
    if (!load.data) return;
    add(samples, Math.floor(load.dataUpdatedAt / 1000), load.data.inFlight, ready);
    chart.current?.setData([samples.at, samples.inFlight, samples.pods]);
  }, [load.data, load.dataUpdatedAt, samples, ready]);

  useEffect(() => {
    const here = place.current;
    if (!here) return;
    const style = getComputedStyle(here);
    // Resolves the colour of the current theme for the canvas.
    const colour = (value: string): string => {
      here.style.color = value;
      const { color } = style;
      here.style.color = "";
      return color;
    };
    const axis = { stroke: colour("var(--muted)"), grid: { stroke: colour("var(--line)"), width: 1 }, ticks: { show: false }, font: `11px ${style.getPropertyValue("--sans")}` };
    const stepped = UPlot.paths.stepped?.({ align: 1 });
    const drawn = new UPlot(
      {
        width: here.clientWidth,
        height: HEIGHT,
        cursor: { y: false, points: { size: 6 } },
        legend: { live: true },
        scales: { y: { range: (_chart, _low, high) => [0, Math.max(4, high * 1.15)] } },
        axes: [axis, { ...axis, size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] }],
        series: [
          {},
          { label: "In flight", stroke: colour("var(--accent)"), width: 2, fill: colour("color-mix(in srgb, var(--accent) 13%, transparent)"), points: { show: false } },
          { label: "Pods ready", stroke: colour("var(--leaving)"), width: 2, dash: [4, 3], points: { show: false }, ...(stepped && { paths: stepped }) },
        ],
      },
      [samples.at, samples.inFlight, samples.pods],
      here,
    );
    chart.current = drawn;
    const resized = new ResizeObserver(() => drawn.setSize({ width: here.clientWidth, height: HEIGHT }));
    resized.observe(here);
    return () => {
      resized.disconnect();
      drawn.destroy();
      chart.current = null;
    };
  }, [dark, samples]);

  return (
    <>
      <div ref={place} className="chart" role="img" aria-label={`${load.data?.inFlight ?? 0} requests in flight on ${ready ?? 0} ready Pods`} />
      {load.error && <p className="small muted">{load.error.message}</p>}
      {load.data && (
        <ul className="pods small">
          {load.data.pods.map((pod) => (
            <li key={pod.name}>
              <span className="truncate" title={pod.name}>
                {pod.name}
              </span>
              <span className="nums muted">{`${pod.inFlight}${pod.concurrency ? ` of ${pod.concurrency}` : ""} in flight`}</span>
            </li>
          ))}
        </ul>
      )}
      {load.data && load.data.silent > 0 && (
        <p className="small muted">{`${load.data.silent === 1 ? "One Pod does" : `${load.data.silent} Pods do`} not answer: without a sidecar, or not up.`}</p>
      )}
    </>
  );
}
