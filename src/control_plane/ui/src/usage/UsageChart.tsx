import "uplot/dist/uPlot.min.css";

import { type ReactElement, useEffect, useRef } from "react";
import UPlot from "uplot";

import { useIsDark } from "../shell/theme.ts";
import type { Chart } from "./usage.ts";

const HEIGHT = 220;
/** Colours of the series, the last one for all others together. */
const COLOURS = ["--accent", "--leaving", "--busy", "--warn", "--good", "--idle"];
const COMPACT = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 2 });

/** Draws a line for each series; `label` tells what is drawn to those who do not see it. */
export default function UsageChart({ chart, label }: { chart: Chart; label: string }): ReactElement {
  const dark = useIsDark();
  const place = useRef<HTMLDivElement>(null);

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
        scales: { y: { range: (_chart, _low, high) => [0, high > 0 ? high * 1.15 : 1] } },
        axes: [axis, { ...axis, size: 52, values: (_chart, splits) => splits.map((split) => COMPACT.format(split)) }],
        series: [
          {},
          ...chart.series.map((series, index) => ({
            label: series.label,
            stroke: colour(`var(${COLOURS[index] ?? "--idle"})`),
            width: 2,
            points: { show: false },
            value: (_chart: UPlot, value: number | null) => (value === null ? "–" : COMPACT.format(value)),
            ...(stepped && { paths: stepped }),
          })),
        ],
      },
      [chart.at, ...chart.series.map((series) => series.values)],
      here,
    );
    const resized = new ResizeObserver(() => drawn.setSize({ width: here.clientWidth, height: HEIGHT }));
    resized.observe(here);
    return () => {
      resized.disconnect();
      drawn.destroy();
    };
  }, [dark, chart]);

  return <div ref={place} className="usage-chart" role="img" aria-label={label} />;
}
