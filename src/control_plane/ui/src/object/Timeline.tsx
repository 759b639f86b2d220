/** History as a band of phases, with widths by the logarithm of their durations, and as a list of all steps. */

import { type ReactElement, useMemo, useState } from "react";

import { toneOf } from "../api/kinds.ts";
import type { Trace, TraceEntry } from "../api/types.ts";
import { PHONE, useNarrow } from "../shell/narrow.ts";
import { fullTime, Phase, useNow } from "../shell/parts.tsx";
import { currentRun, duration, lastCycle, lasted, lastedText, type Stretch, stretches, weight } from "./timeline.ts";

const STEPS = 12;
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const DAY = new Intl.DateTimeFormat(undefined, { dateStyle: "medium" });

export function Timeline({ trace, ended = false }: { trace: Trace; ended?: boolean }): ReactElement {
  const clock = useNow();
  const list = useMemo(() => stretches(trace.entries), [trace.entries]);
  const [all, setAll] = useState(false);
  const narrow = useNarrow(PHONE);
  const [older, setOlder] = useState(false);
  const last = trace.entries.at(-1);
  // For a deleted object, time ends with its last entry. The clocks of browser and cluster may differ.
  const now = ended && last ? Date.parse(last.at) : Math.max(clock, list.at(-1)?.start ?? 0);
  if (!list.length) return <p className="muted">Nothing happened yet.</p>;

  const run = currentRun(list);
  // On a phone each cycle takes two rows, so only the last one is open.
  const begun = narrow ? lastCycle(run) : 0;
  const from = older ? 0 : begun;
  const entries = [...trace.entries].sort((a, b) => b.seq - a.seq);
  const shown = all ? entries : entries.slice(0, STEPS);
  return (
    <div className="timeline">
      {begun > 0 && (
        <button type="button" className="button quiet" aria-expanded={older} onClick={() => setOlder(!older)}>
          {older ? "Last cycle only" : begun === 1 ? "1 earlier phase" : `${begun} earlier phases`}
        </button>
      )}
      <ol className="band" aria-label="From the last beginning until now">
        {run.slice(from).map((stretch, index) => (
          <Part key={from + index} stretch={stretch} now={now} ended={ended} />
        ))}
      </ol>
      {trace.gaps.length > 0 && <p className="small muted">Of older steps, {trace.gaps.map(([from, to]) => (from === to ? from : `${from} to ${to}`)).join(", ")} are no longer kept.</p>}
      <ol className="steps" aria-label="Steps, the latest first">
        {shown.map((entry, index) => (
          <Step key={entry.seq} entry={entry} day={dayOf(entry) !== (index ? dayOf(shown[index - 1]) : DAY.format(clock)) ? dayOf(entry) : null} />
        ))}
      </ol>
      {entries.length > STEPS && (
        <button type="button" className="button quiet" onClick={() => setAll(!all)}>
          {all ? "Fewer steps" : `All ${entries.length} steps`}
        </button>
      )}
    </div>
  );
}

function dayOf(entry: TraceEntry | undefined): string {
  return entry ? DAY.format(new Date(entry.at)) : "";
}

function Part({ stretch, now, ended }: { stretch: Stretch; now: number; ended: boolean }): ReactElement {
  const milliseconds = lasted(stretch, now);
  const open = stretch.end === null && !ended;
  const waits = stretch.waits.length;
  const said = [
    `${stretch.phase}: ${lastedText(milliseconds)}${open ? " so far" : ""}, from ${fullTime(stretch.start)}`,
    ...stretch.waits.map((wait) => wait.reason),
  ].join("\n");
  return (
    <li className={`part tone-${toneOf(stretch.phase)}${open ? " open" : ""}`} style={{ flexGrow: weight(milliseconds) }} title={said} data-stretch={stretch.phase}>
      <span className="part-bar">
        {stretch.waits.map((wait) => (
          <i key={wait.seq} style={{ left: `${milliseconds ? Math.min(97, ((Date.parse(wait.at) - stretch.start) / milliseconds) * 100) : 50}%` }} />
        ))}
      </span>
      <span className="part-name truncate">{stretch.phase}</span>
      <span className="muted nums small truncate">
        {lastedText(milliseconds)}
        {waits > 0 && `, ${waits} ${waits === 1 ? "wait" : "waits"}`}
      </span>
    </li>
  );
}

function Step({ entry, day }: { entry: TraceEntry; day: string | null }): ReactElement {
  const waits = entry.from === entry.to;
  return (
    <li className={waits ? "step waits" : "step"} data-seq={entry.seq}>
      {day && <div className="step-day muted small">{day}</div>}
      <time dateTime={entry.at} title={fullTime(entry.at)} className="nums muted small">
        {CLOCK.format(new Date(entry.at))}
      </time>
      <div className="grow">
        <div className="row wrap step-move">
          {waits ? (
            <>
              <Phase phase={entry.to} />
              <span className="muted">waits</span>
            </>
          ) : (
            <>
              {entry.from && (
                <>
                  <span className="muted">{entry.from}</span>
                  <span aria-label="to" className="muted">
                    →
                  </span>
                </>
              )}
              <Phase phase={entry.to} />
            </>
          )}
          <span className="muted small">
            {entry.action}
            {entry.tookMs > 0 && `, ${duration(entry.tookMs)}`}
          </span>
        </div>
        {entry.reason && <p className="small step-reason">{entry.reason}</p>}
      </div>
    </li>
  );
}
