import "./chat.css";

import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { memo, type ReactElement, useCallback, useLayoutEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";

import { stateOf } from "../api/kinds.ts";
import type { Summary } from "../api/types.ts";
import { fleet } from "../fleet/store.ts";
import { duration } from "../object/timeline.ts";
import { Icon, ToneSign } from "../shell/icons.tsx";
import { CopyButton, ObjectLink, Phase, useTitle } from "../shell/parts.tsx";
import { Notice, State } from "../shell/states.tsx";
import type { Values } from "../tools/schema.ts";
import { Markdown } from "./Markdown.tsx";
import { Composer } from "./Composer.tsx";
import { conversationWith, type Turn } from "./conversation.ts";
import { FlowComposer } from "./FlowComposer.tsx";
import { protocolOf, speaksPlainHttp, targetQuery } from "./protocol.ts";
import { type Approval, type Piece, type Reply, textOfReply } from "./stream.ts";
import { type Target, targetOf } from "./talk.ts";
import { WaitingCalls } from "./WaitingCalls.tsx";

const TALKERS = new Set(["Agent", "Flow", "FlowSet"]);
const SHOWN = 100;
const idOf = (one: Target): string => `${one.kind}/${one.namespace}/${one.name}`;

export function ChatPage(): ReactElement {
  const { with: chosen } = useSearch({ from: "/chat" });
  const target = useMemo(() => targetOf(chosen), [chosen]);
  useTitle(target ? `Chat with ${target.name}` : "Chat");
  return (
    <div className="page full chat-page">
      <h1 className="visually-hidden">{target ? `Chat with ${target.name}` : "Chat"}</h1>
      <div className={`chat${target ? " chosen" : ""}`}>
        <Talkers chosen={chosen} />
        {target ? (
          <Talk key={idOf(target)} target={target} />
        ) : (
          <State icon="chat" title="Choose an agent or flow">
            Agents keep a conversation. Flows take variables and answer once.
          </State>
        )}
      </div>
    </div>
  );
}

function Talkers({ chosen }: { chosen: string | undefined }): ReactElement {
  const view = useSyncExternalStore(fleet.watch, fleet.view);
  const [text, setText] = useState("");
  const all = useMemo(() => view.rows.filter((row) => TALKERS.has(row.kind)).sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name)), [view.rows]);
  const found = all.filter((row) => `${row.namespace}/${row.name} ${row.kind}`.toLowerCase().includes(text.toLowerCase()));
  return (
    <nav aria-label="Agents and flows" className="card talkers">
      {all.length > 8 && (
        <div className="talkers-search">
          <input className="input" type="search" placeholder="Search" aria-label="Search agents and flows" value={text} onChange={(event) => setText(event.target.value)} />
        </div>
      )}
      {view.complete && !found.length && <p className="muted small talkers-none">{all.length ? "Nothing matches." : "There are no agents or flows."}</p>}
      <ul>
        {found.slice(0, SHOWN).map((row) => (
          <li key={idOf(row)}>
            <Link to="/chat" search={{ with: idOf(row) }} className="choice talker" aria-current={idOf(row) === chosen || undefined} activeProps={{}}>
              <Sign {...row} />
              <span className="grow">
                <span className="truncate talker-name">{row.name}</span>
                <span className="truncate muted small talker-kind">{`${row.kind} · ${row.namespace}`}</span>
              </span>
            </Link>
          </li>
        ))}
      </ul>
      {found.length > SHOWN && <p className="muted small talkers-none">{found.length - SHOWN} more: search for them.</p>}
    </nav>
  );
}

/** Phase without room for its word. */
function Sign({ phase, ready }: Summary): ReactElement {
  const { text, tone } = stateOf(phase, ready);
  return (
    <span className={`phase tone-${tone}`} title={text}>
      <ToneSign tone={tone} />
      <span className="visually-hidden">{text}</span>
    </span>
  );
}

/** Ranks agents before flows, and running objects before others. */
function rank(row: Summary): number {
  return (row.kind === "Agent" ? 0 : 1) + (row.phase === "Running" ? 0 : 2);
}

function Talk({ target }: { target: Target }): ReactElement {
  const conversation = conversationWith(target);
  const turns = useSyncExternalStore(conversation.watch, conversation.turns);
  useSyncExternalStore(fleet.watch, fleet.view);
  const summary = fleet.find(target.kind, target.namespace, target.name);
  const [draft, setDraft] = useState("");
  const [flow, setFlow] = useState<string | null>(null);
  const [inputs, setInputs] = useState<Record<string, Values>>({});
  const isAgent = target.kind === "Agent";
  const object = useQuery({ ...targetQuery(target), enabled: isAgent });
  const isForeign = protocolOf(target, object.data) === "http";

  const again = useCallback((): void => {
    const turn = conversation.takeBack();
    if (!turn) return;
    void conversation.send(turn.said, turn.flow, isAgent ? { message: turn.said } : (JSON.parse(turn.said) as object));
  }, [conversation, isAgent]);
  const decide = useCallback((id: number, approved: boolean | null): void => void conversation.decide(id, approved), [conversation]);
  return (
    <section className="talk" aria-label={`Conversation with ${target.name}`}>
      <header className="talk-head">
        <Link to="/chat" className="button quiet icon back" aria-label="All agents and flows">
          <Icon name="right" />
        </Link>
        <div className="grow">
          <h2 className="truncate">
            <ObjectLink {...target} />
          </h2>
          <p className="muted small truncate">{conversation.title ?? summary?.columns.Description ?? `${target.kind} in ${target.namespace}`}</p>
        </div>
        {summary && <Phase {...summary} pill />}
        {turns.length > 0 && (
          <button type="button" className="button quiet" onClick={() => conversation.clear()}>
            New
          </button>
        )}
      </header>
      <Turns turns={turns} busy={conversation.busy} again={again} decide={decide} target={target} />
      {summary?.why && summary.phase !== "Running" && <Notice tone="warn">{summary.why}</Notice>}
      {isForeign ? (
        <Notice tone="idle">{speaksPlainHttp(target)}</Notice>
      ) : isAgent ? (
        <Composer conversation={conversation} text={draft} setText={setDraft} label="Message" placeholder={`Message to ${target.name}`} body={(text) => ({ message: text })} flow={null} />
      ) : (
        <FlowComposer conversation={conversation} target={target} text={draft} setText={setDraft} flow={flow} setFlow={setFlow} inputs={inputs} setInputs={setInputs} />
      )}
    </section>
  );
}

type Decide = (id: number, approved: boolean | null) => void;

function Turns({ turns, busy, again, decide, target }: { turns: readonly Turn[]; busy: boolean; again: () => void; decide: Decide; target: Target }): ReactElement {
  const end = useRef<HTMLDivElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const stick = useRef(true);
  useLayoutEffect(() => {
    if (stick.current) end.current?.scrollIntoView({ block: "end" });
  }, [turns]);
  const scrolled = (): void => {
    const here = scroller.current;
    // A user who has scrolled up is not scrolled down again.
    if (here) stick.current = here.scrollHeight - here.scrollTop - here.clientHeight < 40;
  };
  if (!turns.length) {
    return (
      <div className="turns">
        <State icon="chat" title={target.kind === "Agent" ? `Say something to ${target.name}` : `Give ${target.name} its variables`}>
          {target.kind === "Agent" ? "The answer streams in, with the tools that are called for it." : "A flow answers once, with what its prompt makes of them."}
        </State>
      </div>
    );
  }
  return (
    <div className="turns" ref={scroller} onScroll={scrolled} tabIndex={0} role="log" aria-label="Messages">
      {turns.map((turn, index) => (
        <TurnView key={turn.id} turn={turn} last={index === turns.length - 1} busy={busy && turn.reply.approval !== null} again={again} decide={decide} />
      ))}
      <div ref={end} />
    </div>
  );
}

/** Memoized: in a long conversation only the growing turn is rendered again. */
const TurnView = memo(function TurnView({ turn, last, busy, again, decide }: { turn: Turn; last: boolean; busy: boolean; again: () => void; decide: Decide }): ReactElement {
  const { reply } = turn;
  const over = reply.status !== "waiting" && reply.status !== "streaming";
  return (
    <>
      <div className="said">
        {turn.flow && <span className="small muted">{turn.flow}</span>}
        <p>{turn.said}</p>
      </div>
      <article className="reply" data-status={reply.status} aria-busy={!over}>
        {reply.pieces.map((piece, index) => (
          <PieceView key={index} piece={piece} over={over} />
        ))}
        {reply.status === "waiting" && (
          <span className="thinking" role="status" aria-label="Waiting for the answer">
            <i />
            <i />
            <i />
          </span>
        )}
        {over && reply.approval && <ApprovalCard waiting={reply.approval} busy={busy} decide={(approved) => decide(turn.id, approved)} />}
        {reply.status === "failed" && <Notice tone="bad">{reply.error}</Notice>}
        <footer className="row wrap small muted">
          <Timing reply={reply} />
          {over && textOfReply(reply) !== "" && <CopyButton text={() => textOfReply(reply)} />}
          {over && last && !reply.approval && (
            <button type="button" className="button quiet" onClick={again}>
              <Icon name="retry" />
              Retry
            </button>
          )}
        </footer>
      </article>
    </>
  );
});

/** Calls that wait for the user or for an approver, with what they would do. */
function ApprovalCard({ waiting, busy, decide }: { waiting: Approval; busy: boolean; decide: (approved: boolean | null) => void }): ReactElement {
  const { calls, expires } = waiting;
  const whom = waiting.by === "Approver" ? "an approver" : "you";
  return (
    <section className="card approval" aria-label={`Calls that wait for ${whom}`}>
      <p>
        {calls.length === 1 ? `A call waits for ${whom}` : `${calls.length} calls wait for ${whom}`}
        {expires && <span className="muted small"> until {new Date(expires).toLocaleString()}</span>}
      </p>
      <WaitingCalls calls={calls} />
      {waiting.by === "Approver" ? (
        <div className="row wrap">
          <button type="button" className="button" disabled={busy} onClick={() => decide(null)}>
            Go on
          </button>
          <span className="muted small">once another user with the right to approve has decided; the answer is part of the conversation then.</span>
        </div>
      ) : (
        <div className="row wrap">
          <button type="button" className="button primary" disabled={busy} onClick={() => decide(true)}>
            {calls.length === 1 ? "Approve" : "Approve all"}
          </button>
          <button type="button" className="button" disabled={busy} onClick={() => decide(false)}>
            {calls.length === 1 ? "Reject" : "Reject all"}
          </button>
        </div>
      )}
    </section>
  );
}

function Timing({ reply }: { reply: Reply }): ReactElement | null {
  const parts = [
    reply.status === "stopped" ? "Stopped" : null,
    reply.firstMs === null ? null : `first token after ${duration(reply.firstMs)}`,
    reply.totalMs === null ? null : `${reply.status === "stopped" ? "after" : "all after"} ${duration(reply.totalMs)}`,
  ].filter((part) => part !== null);
  return parts.length ? (
    <span className="nums" data-testid="timing">
      {parts.join(" · ")}
    </span>
  ) : null;
}

function PieceView({ piece, over }: { piece: Piece; over: boolean }): ReactElement {
  if (piece.type === "text") return <Markdown text={piece.text} />;
  const running = piece.ok === null && !over;
  const tone = running ? "busy" : piece.ok ? "good" : piece.ok === null ? "idle" : "bad";
  return (
    <details className="tool-call" data-tool={piece.name}>
      <summary>
        <span className={`phase tone-${tone}`}>
          <ToneSign tone={tone} size={14} />
        </span>
        <code>{piece.name}</code>
        <span className="muted small">{running ? "runs …" : piece.ok === null ? "reported no result" : `${piece.ok ? "answered" : "failed"}${piece.tookMs === null ? "" : ` in ${piece.tookMs === 0 ? "under 1 ms" : duration(piece.tookMs)}`}`}</span>
      </summary>
      <pre className="code" tabIndex={0}>
        {JSON.stringify(piece.arguments ?? {}, null, 2)}
      </pre>
    </details>
  );
}
