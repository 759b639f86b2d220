/** Field in which a message, or the variables of a flow as JSON, is written and sent. */

import { type FormEvent, type KeyboardEvent, type ReactElement, useEffect, useId, useLayoutEffect, useRef, useState } from "react";

import { SubmitOrStop } from "../shell/parts.tsx";
import type { Conversation } from "./conversation.ts";

interface ComposerProps {
  conversation: Conversation;
  text: string;
  setText: (text: string) => void;
  label: string;
  placeholder: string;
  body: (text: string) => object;
  flow: string | null;
  mono?: boolean;
  check?: (text: string) => string | null;
}

export function Composer({ conversation, text, setText, label, placeholder, body, flow, mono = false, check }: ComposerProps): ReactElement {
  const id = useId();
  const field = useRef<HTMLTextAreaElement>(null);
  const [error, setError] = useState<string | null>(null);
  const busy = conversation.busy;
  useEffect(() => field.current?.focus(), []);
  useLayoutEffect(() => {
    const here = field.current;
    if (!here) return;
    here.style.height = "auto";
    here.style.height = `${Math.min(here.scrollHeight + 2, 200)}px`;
  }, [text]);
  const send = (event?: FormEvent): void => {
    event?.preventDefault();
    const said = text.trim();
    if (!said || busy) return;
    const wrong = check?.(said) ?? null;
    setError(wrong);
    if (wrong) return;
    setText("");
    void conversation.send(said, flow, body(said));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing && (!mono || event.ctrlKey || event.metaKey)) send(event as unknown as FormEvent);
    if (event.key === "Escape" && busy) conversation.stop();
  };
  return (
    <form className="composer" onSubmit={send}>
      <label htmlFor={id} className="visually-hidden">
        {label}
      </label>
      <textarea
        ref={field}
        id={id}
        className={`input${mono ? " mono" : ""}`}
        rows={mono ? 3 : 1}
        placeholder={placeholder}
        spellCheck={!mono}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKeyDown}
        aria-invalid={error !== null}
        aria-describedby={`${id}-hint`}
      />
      <SubmitOrStop label="Send" icon="send" stop={busy ? () => conversation.stop() : null} disabled={!text.trim()} />
      <span id={`${id}-hint`} className={error ? "field-error hint" : "small muted hint"} role={error ? "alert" : undefined}>
        {error ?? (mono ? "JSON, sent by Ctrl and Enter" : "Enter sends, Shift and Enter begins a line, Escape stops")}
      </span>
    </form>
  );
}
