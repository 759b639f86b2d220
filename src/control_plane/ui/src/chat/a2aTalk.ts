/**
 * Turns with an agent that speaks Agent2Agent, through the gateway. Its context is the conversation. A stream that breaks off goes
 * on by asking for the task each second, as does the answer of an agent that does not stream; a turn that is stopped cancels it.
 */

import { ApiError, request } from "../api/client.ts";
import { eventsOf, type ServerEvent } from "../api/sse.ts";
import { A2aError, type AgentInterface, A2aTurn, cancelBody, CARD_PATH, interfaceOf, messageBody, noCard, taskBody, VERSION_HEADER } from "./a2a.ts";
import { rootOf, type Target } from "./talk.ts";

/** What is known of an agent from turn to turn. */
export interface A2aChat {
  /** Interface that its card names, once that was read. */
  agent: AgentInterface | null;
  /** Context of the conversation, once the agent has named it. */
  context: string | null;
  /** Task that waits for the next message. */
  waiting: string | null;
}

export const newChat = (): A2aChat => ({ agent: null, context: null, waiting: null });

const POLL_MS = 1000;
const JSON_TYPE = "application/json";
const STREAM_TYPE = "text/event-stream";

/** Sends a message and passes on its answer as the events of a chat. */
export async function askAgent(chat: A2aChat, target: Target, text: string, signal: AbortSignal, take: (event: ServerEvent) => void): Promise<void> {
  const turn = new A2aTurn();
  const agent = chat.agent ?? (await agentAt(rootOf(target), signal));
  const read = (json: string): void => {
    const added = turn.read(json);
    chat.context = turn.context ?? chat.context;
    // No message decides on calls.
    chat.waiting = turn.state === "input-required" && !turn.approval ? turn.task : null;
    if (added) take(eventOf("message", { token: added }));
  };
  try {
    const response = await post(agent, messageBody(agent, messageId(), text, chat.context, chat.waiting), agent.streams ? STREAM_TYPE : JSON_TYPE, signal);
    if (response.headers.get("Content-Type")?.startsWith(STREAM_TYPE) && response.body) await readStream(response.body, turn, read, signal);
    else read(await response.text());
    while (turn.isWorking) {
      if (turn.task === null) throw new ApiError(0, "The answer was cut off.");
      await pause(POLL_MS, signal);
      read(await (await post(agent, taskBody(agent, turn.task), JSON_TYPE, signal)).text());
    }
    chat.agent = agent;
  } catch (error) {
    // The agent may have changed: the next message reads its card again.
    chat.agent = null;
    // A task that takes no message is not named by the next one.
    if (error instanceof A2aError) chat.waiting = null;
    if (signal.aborted && turn.task !== null && turn.isWorking) void post(agent, cancelBody(agent, turn.task), JSON_TYPE).catch(() => undefined);
    throw error;
  }
  if (turn.approval) take(eventOf("approval", turn.approval));
  const failure = turn.failure;
  take(failure === null ? eventOf("done", { conversation_id: turn.context }) : eventOf("error", { error: failure }));
}

/** Reads the events of a stream until the answer is whole. A stream that breaks off before is no failure. */
async function readStream(body: ReadableStream<Uint8Array>, turn: A2aTurn, read: (json: string) => void, signal: AbortSignal): Promise<void> {
  try {
    for await (const event of eventsOf(body)) {
      if (event.data) read(event.data);
      if (!turn.isWorking) return;
    }
  } catch (error) {
    if (signal.aborted || error instanceof A2aError || error instanceof RangeError) throw error;
  }
}

/** Returns the interface of the agent at this path, from its card. */
async function agentAt(root: string, signal: AbortSignal): Promise<AgentInterface> {
  let response: Response;
  try {
    response = await request(root + CARD_PATH, { headers: { Accept: JSON_TYPE }, signal });
  } catch (error) {
    if (error instanceof ApiError && [404, 405, 410].includes(error.status)) throw noCard();
    throw error;
  }
  return interfaceOf(await response.text(), root);
}

async function post(agent: AgentInterface, body: object, accept: string, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { "Content-Type": JSON_TYPE, Accept: accept };
  // A request without the header means 0.3.
  if (agent.version === "1.0") headers[VERSION_HEADER] = agent.version;
  return await request(agent.path, { method: "POST", headers, body: JSON.stringify(body), ...(signal && { signal }) });
}

/** Returns a random id for a message. `randomUUID` is absent on pages without TLS. */
function messageId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

const eventOf = (event: string, data: object): ServerEvent => ({ event, data: JSON.stringify(data), id: "" });

async function pause(ms: number, signal: AbortSignal): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    const stop = (): void => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    if (signal.aborted) stop();
    else signal.addEventListener("abort", stop, { once: true });
  });
}
