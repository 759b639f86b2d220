/** Icons of the UI, drawn on a 16 × 16 grid in the colour of the text. */

import type { ReactElement } from "react";

import type { Tone } from "../api/kinds.ts";

const PATHS = {
  fleet: "M2 3.5h12M2 8h12M2 12.5h12",
  graph: "M3.5 5.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM12.5 10a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM3.5 14.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4ZM5.4 4.3l5.2 2.8M5.4 11.7l5.2-2.8",
  tools: "M9.6 3.2a3.4 3.4 0 0 0-4 4.6L2 11.4 4.6 14l3.6-3.6a3.4 3.4 0 0 0 4.6-4L10.6 8.6 8 7.9 7.3 5.4Z",
  chat: "M14 7.5c0 2.8-2.7 5-6 5-.8 0-1.6-.1-2.3-.4L2.5 13.5l.8-2.7C2.5 9.9 2 8.7 2 7.5c0-2.8 2.7-5 6-5s6 2.2 6 5Z",
  approvals: "M8 1.5l5.5 2v4c0 3.5-2.3 5.8-5.5 7-3.2-1.2-5.5-3.5-5.5-7v-4ZM5.5 8l1.8 1.8 3.4-3.6",
  activity: "M1.5 8.5h3l2-5.5 3 10 2-4.5h3",
  usage: "M2 14h12M4 11.5v-3M8 11.5v-8M12 11.5v-5",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM14 14l-3.4-3.4",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  check: "M3 8.5l3.2 3.2L13 4.5",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM8 1.5V3M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1 1M11.6 11.6l1 1M12.6 3.4l-1 1M4.4 11.6l-1 1",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5a6 6 0 1 0 7 7Z",
  auto: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 2v12M8 5h4.5M8 8h6M8 11h4.5",
  out: "M6 2.5H3v11h3M10 5l3 3-3 3M13 8H6.5",
  up: "M8 13V3.5M4 7l4-4 4 4",
  down: "M8 3v9.5M4 9l4 4 4-4",
  right: "M6 3.5L10.5 8 6 12.5",
  warn: "M8 2L15 14H1ZM8 6.5v3.5M8 12v.2",
  stop: "M4 4h8v8H4z",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  send: "M2 8l12-6-4 12-2.5-5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  play: "M5 3.5l7 4.5-7 4.5z",
  lock: "M3.5 7.5h9v6h-9zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12ZM8 4.5V8l2.5 1.5",
  link: "M6.5 9.5l3-3M7 4.5L8.5 3a3.2 3.2 0 0 1 4.5 4.5L11.5 9M9 11.5L7.5 13A3.2 3.2 0 0 1 3 8.5L4.5 7",
  empty: "M2 9.5l2-6h8l2 6v4H2zM2 9.5h3.5l1 1.5h3l1-1.5H14",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }): ReactElement {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

const RING = "M8 1.5a6.5 6.5 0 1 1 0 13a6.5 6.5 0 1 1 0-13Z";
const SIGNS: Record<Tone, string> = {
  good: "M4.5 8.3l2.3 2.3 4.7-5",
  busy: "M8 4.5V8l2.3 1.4",
  bad: "M5.5 5.5l5 5M10.5 5.5l-5 5",
  idle: "M6 6h4v4H6z",
  leaving: "M5 8h6",
  warn: "M8 4.6v4.1M8 11.2v.1",
  unknown: "M6.3 6.3a1.8 1.8 0 1 1 2.5 1.7c-.5.2-.8.6-.8 1.1M8 11.3v.1",
};

/** Icon of a tone: its shape means the same as its colour. */
export function ToneSign({ tone, size = 16 }: { tone: Tone; size?: number }): ReactElement {
  return (
    <svg width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" strokeWidth="1.6" strokeLinecap="round" strokeLinejoin="round" aria-hidden="true">
      {tone === "busy" ? (
        <>
          <path d={RING} strokeDasharray="3 2.1" />
          <path d={SIGNS.busy} />
        </>
      ) : (
        <path d={RING + SIGNS[tone]} />
      )}
    </svg>
  );
}

export function Logo({ size = 24 }: { size?: number }): ReactElement {
  return (
    <svg width={size} height={size} viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="#0f766e" />
      <path d="M7 22c3-1 4-4 4-8M11 14c-2-1-3-3-3-5M11 16c3-1 4-3 4-6M16 22c1-4 1-8 0-13M16 17c3-1 5-3 5-7M21 22c0-3 1-5 4-7M23 17c-1-2-1-4 0-6" fill="none" stroke="#fff" strokeWidth="2" strokeLinecap="round" />
    </svg>
  );
}
