/** Conversation with one target. It continues while another page is shown, and is lost when the page is unloaded. */

import { ApiError } from "../api/client.ts";
import type { ServerEvent } from "../api/sse.ts";
import { A2aError } from "./a2a.ts";
import { type A2aChat, askAgent, newChat } from "./a2aTalk.ts";
import { readProtocol, speaksPlainHttp } from "./protocol.ts";
import { atEnd, decidedBefore, type Ended, failed, isTooLong, type Reply, resumed, stopped, WAITING, withEvent } from "./stream.ts";
import { ask, pathOf, rootOf, type Target } from "./talk.ts";

export interface Turn {
  id: number;
  /** The message, or the variables of a flow as JSON. */
  said: string;
  /** Name of the flow in a set. */
  flow: string | null;
  reply: Reply;
}

/** Limit of the turns, the latest ones. */
const KEPT = 200;
/** Interval of renderings: tokens that come within one frame are shown together. */
const FRAME_MS = 16;

export class Conversation {
  readonly target: Target;
  #turns: readonly Turn[] = [];
  #ended: Ended = { conversation: null, title: null };
  #a2a: A2aChat = newChat();
  #running: AbortController | null = null;
  #watchers = new Set<() => void>();
  #next = 1;
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(target: Target) {
    this.target = target;
  }

  readonly watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };
  readonly turns = (): readonly Turn[] => this.#turns;

  get title(): string | null {
    return this.#ended.title;
  }
  get busy(): boolean {
    return this.#running !== null;
  }

  async send(said: string, flow: string | null, body: object): Promise<void> {
    if (this.#running) return;
    const id = this.#next++;
    const conversation = this.#ended.conversation;
    const all = this.target.kind === "Agent" && conversation ? { ...body, conversation_id: conversation } : body;
    await this.#follow(id, [...this.#turns.slice(1 - KEPT), { id, said, flow, reply: WAITING }], async (signal, take) => {
      const protocol = await readProtocol(this.target);
      if (protocol === "http") throw new A2aError(speaksPlainHttp(this.target));
      if (protocol === "a2a") await askAgent(this.#a2a, this.target, said, signal, take);
      else await ask(pathOf(this.target, flow), all, signal, take);
    });
  }

  /** Approves or rejects all calls of a turn that waits, or goes on with what an approver has decided (null), and shows how it goes on. */
  async decide(id: number, approved: boolean | null): Promise<void> {
    const waiting = this.#turns.find((turn) => turn.id === id)?.reply.approval;
    if (this.#running || !waiting) return;
    const approvals = approved === null ? [] : waiting.calls.map((call) => ({ id: call.id, approved }));
    const turns = this.#turns.map((turn) => (turn.id === id ? { ...turn, reply: resumed(turn.reply) } : turn));
    const path = `${rootOf(this.target)}/approvals/${encodeURIComponent(waiting.task)}`;
    await this.#follow(id, turns, (signal, take) => ask(path, { approvals }, signal, take));
  }

  /** Shows `turns`, and in the one with this id what comes. */
  async #follow(
    id: number,
    turns: readonly Turn[],
    begin: (signal: AbortSignal, take: (event: ServerEvent) => void) => Promise<void>,
  ): Promise<void> {
    const stop = (this.#running = new AbortController());
    const began = performance.now();
    const ms = (): number => performance.now() - began;
    this.#show(turns);
    try {
      const take = (event: ServerEvent): void => {
        this.#reply(id, (reply) => withEvent(reply, event, ms(), (end) => this.#end(end)));
        if (this.#turns.some((turn) => turn.id === id && isTooLong(turn.reply))) throw new RangeError("The answer is longer than this page shows.");
      };
      await begin(stop.signal, take);
      this.#reply(id, (reply) => atEnd(reply, ms()));
    } catch (error) {
      if (isOver(error)) this.#reply(id, decidedBefore);
      this.#reply(id, (reply) => (stop.signal.aborted ? stopped(reply, ms()) : failed(reply, explained(error), ms())));
    } finally {
      this.#running = null;
      this.#show(this.#turns);
    }
  }

  stop(): void {
    this.#running?.abort();
  }

  /** Removes the last turn, to send it again. */
  takeBack(): Turn | null {
    const last = this.#turns.at(-1) ?? null;
    if (last && !this.#running) this.#show(this.#turns.slice(0, -1));
    return last;
  }

  clear(): void {
    this.stop();
    this.#ended = { conversation: null, title: null };
    this.#a2a = newChat();
    this.#show([]);
  }

  #end(end: Ended): void {
    this.#ended = { conversation: end.conversation ?? this.#ended.conversation, title: end.title ?? this.#ended.title };
  }

  #reply(id: number, change: (reply: Reply) => Reply): void {
    this.#turns = this.#turns.map((turn) => (turn.id === id ? { ...turn, reply: change(turn.reply) } : turn));
    this.#timer ??= setTimeout(() => this.#show(this.#turns), FRAME_MS);
  }

  #show(turns: readonly Turn[]): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#turns = turns;
    for (const watcher of this.#watchers) watcher();
  }
}

/** Returns whether a decision came too late: the task is unknown, expired or decided. */
function isOver(error: unknown): boolean {
  return error instanceof ApiError && (error.status === 404 || error.status === 409);
}

function explained(error: unknown): string {
  // Others refuse for reasons of their own, such as that only an approver may decide.
  if (error instanceof ApiError && error.status === 403 && error.reason === "forbidden") return `You may not talk to it: ${error.message}`;
  if (error instanceof ApiError || error instanceof A2aError || error instanceof RangeError) return error.message;
  return "The connection broke before the answer was whole.";
}

const all = new Map<string, Conversation>();

export function conversationWith(target: Target): Conversation {
  const key = `${target.kind}/${target.namespace}/${target.name}`;
  let conversation = all.get(key);
  if (!conversation) all.set(key, (conversation = new Conversation(target)));
  return conversation;
}

/** Deletes all conversations, for the case that another user signs in. */
export function forgetConversations(): void {
  for (const conversation of all.values()) conversation.clear();
  all.clear();
}
