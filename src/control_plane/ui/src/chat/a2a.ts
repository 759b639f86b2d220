/**
 * [Agent2Agent protocol](https://a2a-protocol.org), version 1.0 and the methods of 0.3, as a client speaks it: cards, requests,
 * and answers. 1.0 names an object by the field that holds it, 0.3 by its `kind`.
 */

import { GATEWAY } from "../api/client.ts";

export type Version = "1.0" | "0.3";

/** Interface of an agent that speaks JSON-RPC. */
export interface AgentInterface {
  version: Version;
  /** Path of the requests on this origin. */
  path: string;
  /** True if the agent can stream its answer. */
  streams: boolean;
}

/** State of a task, the same in both versions. */
export type TaskState = "working" | "input-required" | "completed" | "failed" | "canceled" | "rejected" | "auth-required";

/** Agent that does not speak the protocol, or refuses a request. */
export class A2aError extends Error {
  override name = "A2aError";
}

/** Path of the card, below the address of the agent. */
export const CARD_PATH = "/.well-known/agent-card.json";
export const VERSION_HEADER = "A2A-Version";

const BINDING = "JSONRPC";
const NO_CARD = "It has no agent card: is it an A2A agent?";
const METHODS = {
  "1.0": { send: "SendMessage", stream: "SendStreamingMessage", get: "GetTask", cancel: "CancelTask" },
  "0.3": { send: "message/send", stream: "message/stream", get: "tasks/get", cancel: "tasks/cancel" },
} as const;
const FAILURES: Partial<Record<TaskState, string>> = {
  failed: "The agent failed",
  canceled: "The agent cancelled the task",
  rejected: "The agent rejected the task",
  "auth-required": "The agent requires credentials",
};

type Json = Record<string, unknown>;
const heldBy = (value: unknown): Json | null => (typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : null);
const objectOf = (value: unknown): Json => heldBy(value) ?? {};
const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? (value as unknown[]) : []);
const textOf = (value: unknown): string => (typeof value === "string" ? value : "");

function parsed(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return null;
  }
}

/** Interface as a card names it. */
interface Offer {
  binding: string;
  version: string;
  url: string;
}

/** Returns what a card offers, in its order; nothing of what is no card. */
function offersOf(card: Json): Offer[] {
  const version = textOf(card.protocolVersion) || "0.3";
  const listed = listOf(card.supportedInterfaces).map(objectOf).map((one) => ({ binding: textOf(one.protocolBinding) || BINDING, version: textOf(one.protocolVersion) || "1.0", url: one.url }));
  const main = { binding: textOf(card.preferredTransport) || BINDING, version, url: card.url };
  const more = listOf(card.additionalInterfaces).map(objectOf).map((one) => ({ binding: textOf(one.transport), version, url: one.url }));
  return [...listed, main, ...more.filter((one) => one.binding)].filter((offer): offer is Offer => typeof offer.url === "string");
}

function versionOf(text: string): Version | null {
  const [major, minor] = text.split(".");
  if (major === "1" && (minor === undefined || minor === "0")) return "1.0";
  return major === "0" && minor === "3" ? "0.3" : null;
}

/** Returns the path of a URL, which may be a path alone. */
function pathOfUrl(url: string): string | null {
  try {
    const to = new URL(url, "http://agent/");
    return to.protocol === "http:" || to.protocol === "https:" ? to.pathname : null;
  } catch {
    return null;
  }
}

/** Returns the path below `base`. An agent that knows the address by which it is reached names the whole path, or what the gateway knows of it. */
function below(base: string, path: string): string {
  const known = [base, base.slice(base.startsWith(GATEWAY) ? GATEWAY.length : 0)].find((prefix) => path === prefix || path.startsWith(`${prefix}/`));
  return base + (known === undefined ? path : path.slice(known.length));
}

/**
 * Chooses the interface of a card that was fetched below `base`, 1.0 before 0.3. Only the path of its URL is used: frameworks
 * publish the address that they listen on, and the token of the user must reach no other host.
 */
export function interfaceOf(json: string, base: string): AgentInterface {
  const card = objectOf(parsed(json));
  const offers = offersOf(card);
  if (!offers.length) throw new A2aError(NO_CARD);
  for (const version of ["1.0", "0.3"] as const) {
    for (const offer of offers) {
      const path = offer.binding.toUpperCase() === BINDING && versionOf(offer.version) === version ? pathOfUrl(offer.url) : null;
      if (path !== null) return { version, path: below(base, path), streams: objectOf(card.capabilities).streaming === true };
    }
  }
  const names = offers.map((offer) => `${offer.binding} ${offer.version}`).join(", ");
  throw new A2aError(`Its agent card has no interface JSONRPC of version 1.0 or 0.3, it offers ${names.slice(0, 200)}.`);
}

export function noCard(): A2aError {
  return new A2aError(NO_CARD);
}

const rpc = (method: string, params: object): object => ({ jsonrpc: "2.0", id: 1, method, params });

/** Returns the request that sends a message: as a stream where the agent has one, else as one answer. */
export function messageBody({ version, streams }: AgentInterface, id: string, text: string, context: string | null, task: string | null): object {
  const shape = version === "1.0" ? { role: "ROLE_USER", parts: [{ text }] } : { kind: "message", role: "user", parts: [{ kind: "text", text }] };
  const message = { ...shape, messageId: id, ...(context === null ? {} : { contextId: context }), ...(task === null ? {} : { taskId: task }) };
  const waits = version === "0.3" && !streams ? { configuration: { blocking: true } } : {};
  return rpc(METHODS[version][streams ? "stream" : "send"], { message, ...waits });
}

export function taskBody({ version }: AgentInterface, task: string): object {
  return rpc(METHODS[version].get, { id: task, historyLength: 0 });
}

export function cancelBody({ version }: AgentInterface, task: string): object {
  return rpc(METHODS[version].cancel, { id: task });
}

/** Answer to one message, from a response or from the events of a stream. */
export class A2aTurn {
  task: string | null = null;
  context: string | null = null;
  state: TaskState | null = null;
  /** What a task that waits says of the calls that a person decides on, of an agent of Récif's runtime. */
  approval: Record<string, unknown> | null = null;
  #artifacts: { id: string; text: string }[] = [];
  /** Text of the newest status, or of the message. */
  #statusText = "";
  /** Artifact of which text was returned last. */
  #last: object | null = null;
  #hasText = false;
  #hasStatusText = false;

  /** True while more is to come. */
  get isWorking(): boolean {
    return this.state === null || this.state === "working";
  }

  /** Returns why the task has no answer, if it ended or stopped without one. */
  get failure(): string | null {
    const what = this.state === null ? undefined : FAILURES[this.state];
    if (what === undefined) return null;
    return this.#statusText ? `${what}: ${this.#statusText}` : `${what}.`;
  }

  /** Reads a response, or the data of an event, and returns the text that it adds to the answer. */
  read(json: string): string {
    const response = objectOf(parsed(json));
    if (response.error !== undefined && response.error !== null) {
      const { code, message } = objectOf(response.error);
      throw new A2aError(`${textOf(message) || "The agent refuses the request"} (error ${typeof code === "number" ? code : 0})`);
    }
    const result = heldBy(response.result);
    if (!result) throw new A2aError("The answer is not one of A2A: it has neither a result nor an error.");
    return this.#apply(result);
  }

  #apply(result: Json): string {
    const named = (field: string, kind: string): Json | null => heldBy(result[field]) ?? (result.kind === kind ? result : null);
    const artifactUpdate = named("artifactUpdate", "artifact-update");
    if (artifactUpdate) {
      this.#identify(artifactUpdate.taskId, artifactUpdate.contextId);
      return this.#artifact(objectOf(artifactUpdate.artifact), artifactUpdate.append === true);
    }
    const statusUpdate = named("statusUpdate", "status-update");
    if (statusUpdate) {
      this.#identify(statusUpdate.taskId, statusUpdate.contextId);
      return this.#status(objectOf(statusUpdate.status));
    }
    const message = named("message", "message");
    if (message) {
      this.#identify(message.taskId, message.contextId);
      this.state = "completed";
      this.#statusText = partsOf(message);
      return this.#closing();
    }
    // The result of `GetTask` is the task itself.
    const bare = typeof result.id === "string" && heldBy(result.status) ? result : null;
    const task = named("task", "task") ?? bare;
    if (!task) throw new A2aError("The answer is not one of A2A: its result is neither a task nor a message.");
    this.#identify(task.id, task.contextId);
    const added = listOf(task.artifacts).map((one) => this.#artifact(objectOf(one), false));
    return added.join("") + this.#status(objectOf(task.status));
  }

  #identify(task: unknown, context: unknown): void {
    this.task = textOf(task) || this.task;
    this.context = textOf(context) || this.context;
  }

  /** Replaces or extends an artifact, and returns what is new of its text. */
  #artifact(artifact: Json, append: boolean): string {
    const id = textOf(artifact.artifactId);
    const text = partsOf(artifact);
    let known = this.#artifacts.find((one) => one.id === id);
    if (!known) this.#artifacts.push((known = { id, text: "" }));
    let added = text;
    if (append) known.text += text;
    else {
      // An artifact that was sent piece by piece may come as a whole in the end.
      added = text.startsWith(known.text) ? text.slice(known.text.length) : `\n${text}`;
      known.text = text;
    }
    if (!added) return "";
    const isOther = this.#hasText && this.#last !== known;
    this.#last = known;
    this.#hasText = true;
    return isOther ? `\n${added}` : added;
  }

  #status(status: Json): string {
    this.state = stateOf(textOf(status.state));
    const message = objectOf(status.message);
    this.#statusText = partsOf(message);
    this.approval = this.state === "input-required" ? heldBy(objectOf(message.metadata)["recif.dev/waiting"]) : null;
    return this.#closing();
  }

  /** Returns the text of the status, once, if it belongs to the answer. */
  #closing(): string {
    const isPart = this.state === "input-required" || (this.state === "completed" && this.#artifacts.every((one) => !one.text));
    if (!isPart || this.#hasStatusText || !this.#statusText) return "";
    this.#hasStatusText = true;
    const before = this.#hasText ? "\n" : "";
    this.#hasText = true;
    return before + this.#statusText;
  }
}

/** Returns the text of the parts of a message or artifact; of data, its JSON. Files are left out. */
function partsOf(of: Json): string {
  const texts = listOf(of.parts).map(objectOf).map((part) => {
    if (typeof part.text === "string") return part.text;
    return part.data === undefined || part.data === null ? "" : JSON.stringify(part.data);
  });
  return texts.join("");
}

/** Returns the state of this name: `TASK_STATE_INPUT_REQUIRED` of 1.0, `input-required` of 0.3; an unknown one is that of a task that works. */
function stateOf(name: string): TaskState {
  const word = name.replace(/^TASK_STATE_/, "").toLowerCase().replaceAll("_", "-");
  switch (word) {
    case "input-required":
    case "completed":
    case "failed":
    case "canceled":
    case "rejected":
    case "auth-required":
      return word;
    case "cancelled":
      return "canceled";
    default:
      return "working";
  }
}
