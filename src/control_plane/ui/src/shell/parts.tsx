/** Small components that all pages share. */

import { useNavigate } from "@tanstack/react-router";
import { type MouseEvent, type ReactElement, type ReactNode, useEffect, useRef, useState, useSyncExternalStore } from "react";

import { kindOf, pluralOf, stateOf } from "../api/kinds.ts";
import { ago } from "../object/timeline.ts";
import { Icon, type IconName, ToneSign } from "./icons.tsx";

/** Phase as icon, word and colour; `ready` is the status of the object's Ready condition, if it is an object's phase of now. */
export function Phase({ phase, ready, pill = false }: { phase: string | null; ready?: string | undefined; pill?: boolean }): ReactElement {
  const { text, tone } = stateOf(phase, ready);
  return (
    <span className={`phase tone-${tone}${pill ? " pill" : ""}`}>
      <ToneSign tone={tone} size={pill ? 14 : 16} />
      {text}
    </span>
  );
}

const ticking = new Set<() => void>();
let now = Date.now();
let timer: ReturnType<typeof setInterval> | null = null;

function watchClock(watcher: () => void): () => void {
  ticking.add(watcher);
  timer ??= setInterval(() => {
    now = Date.now();
    for (const one of ticking) one();
  }, 1000);
  return () => {
    ticking.delete(watcher);
    if (ticking.size || !timer) return;
    clearInterval(timer);
    timer = null;
  };
}

/** Returns the time as of the last tick; without subscribers, the current time. */
function clock(): number {
  return timer ? now : (now = Date.now());
}

/** Returns the time, updated once a second. */
export function useNow(): number {
  const ticked = useSyncExternalStore(watchClock, () => now);
  return timer ? ticked : clock();
}

const FULL = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function fullTime(at: string | number): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "" : FULL.format(time);
}

const TIME = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const DAY_AND_TIME = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });

/** Formats a time in the user's time zone: of today to the second, of another day with its date. Of an invalid date it is empty. */
export function localTime(at: string, now: number): string {
  const time = new Date(at);
  if (Number.isNaN(time.getTime())) return "";
  return (time.toDateString() === new Date(now).toDateString() ? TIME : DAY_AND_TIME).format(time);
}

/** Age, with the full date as a tooltip. Rendered again only when its text changes. */
export function Ago({ at }: { at: string | null | undefined }): ReactElement | null {
  const text = useSyncExternalStore(watchClock, () => (at ? ago(Math.max(0, clock() - Date.parse(at))) : "–"));
  if (!at) return <span className="muted">{text}</span>;
  return (
    <time dateTime={at} className="nums" onPointerEnter={(event) => (event.currentTarget.title = fullTime(at))}>
      {text}
    </time>
  );
}

/** Link to an object. It is lighter than the router's, of which a list of thousands would create dozens while it scrolls. */
export function ObjectLink(props: {
  kind: string;
  namespace: string;
  name: string;
  children?: ReactNode;
  className?: string;
  title?: string;
}): ReactElement {
  const { kind, namespace, name, children, className, title } = props;
  const navigate = useNavigate();
  const plural = pluralOf(kind);
  const follow = (event: MouseEvent): void => {
    // A new tab or window is left to the browser.
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    void navigate({ to: "/objects/$plural/$namespace/$name", params: { plural, namespace, name } });
  };
  return (
    <a href={`/ui/objects/${[plural, namespace, name].map(encodeURIComponent).join("/")}`} onClick={follow} className={className} title={title}>
      {children ?? name}
    </a>
  );
}

export function CopyButton({ text, label = "Copy", quiet = true }: { text: () => string; label?: string; quiet?: boolean }): ReactElement {
  const [done, setDone] = useState<"copied" | "failed" | null>(null);
  const reset = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(reset.current), []);
  const copy = async (): Promise<void> => {
    setDone((await copied(text())) ? "copied" : "failed");
    clearTimeout(reset.current);
    reset.current = setTimeout(() => setDone(null), 2000);
  };
  return (
    <button type="button" className={`button${quiet ? " quiet" : ""}`} onClick={() => void copy()}>
      <Icon name={done === "copied" ? "check" : "copy"} />
      <span aria-live="polite">{done === "copied" ? "Copied" : done === "failed" ? "Select and copy it by hand" : label}</span>
    </button>
  );
}

/** Manifest, or command, to be copied. A command is broken between its words, and not at the hyphens of a flag. */
export function Example({ text }: { text: string }): ReactElement {
  const words = text.includes("\n") ? [] : text.split(/(?<= )/);
  return (
    <span className="example">
      <code>{words.length ? words.map((word, index) => <span key={index}>{word}</span>) : text}</code>
      <CopyButton text={() => text} />
    </span>
  );
}

async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without TLS there is no clipboard API; the older way works.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

interface SubmitOrStopProps {
  label: string;
  icon: IconName;
  /** Stops what the form began; null: nothing is under way. */
  stop: (() => void) | null;
  disabled?: boolean;
}

/** Button that submits a form, and stops what it began while that is under way. */
export function SubmitOrStop({ label, icon, stop, disabled = false }: SubmitOrStopProps): ReactElement {
  if (stop) {
    return (
      <button type="button" className="button" onClick={stop}>
        <Icon name="stop" />
        Stop
      </button>
    );
  }
  return (
    <button type="submit" className="button primary" disabled={disabled}>
      <Icon name={icon} />
      {label}
    </button>
  );
}

/** Card with a heading. */
export function Card({ title, aside, children, flush = false }: { title: ReactNode; aside?: ReactNode; children: ReactNode; flush?: boolean }): ReactElement {
  return (
    <section className="card">
      <header>
        <h2 className="grow">{title}</h2>
        {aside}
      </header>
      {flush ? children : <div className="body">{children}</div>}
    </section>
  );
}

export function kindLabel(kind: string): string {
  return kindOf(kind)?.label ?? kind;
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Récif`;
  }, [title]);
}

/** Formats a number by the user's locale. */
export function count(value: number): string {
  return value.toLocaleString();
}
