/**
 * Client of the live stream of the fleet.
 *
 * It reconnects with exponential back-off and jitter, resumes by Last-Event-ID, and drops a connection that is silent for
 * longer than the interval of the server's comments. While it rests it has no connection. Listeners get changes, transitions,
 * resets (the lists have to be read again) and the state of the connection.
 */

import { API, ApiError, request } from "./client.ts";
import { eventsOf } from "./sse.ts";
import type { Change, Transition } from "./types.ts";

export interface LiveState {
  status: "connecting" | "live" | "broken";
  /** Time of the last received chunk, in milliseconds of the epoch; null if there was none. */
  heardAt: number | null;
  /** Reason for the end of the last connection. */
  problem: string | null;
}

export interface LiveListener {
  change?: (change: Change) => void;
  transition?: (transition: Transition) => void;
  /** Called when changes may have been missed. */
  reset?: () => void;
  /** Called when the connection is open, for the first time or again. */
  connected?: () => void;
}

/** Longest silence of a connection. The server sends a comment each 15 s. */
const SILENCE_MS = 40_000;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 8_000;
/** Shortest duration of a good connection, which resets the back-off. One that is accepted and dropped at once does not. */
const STEADY_MS = 5_000;

/** Returns the back-off before the next attempt, with jitter; the first one is short. */
export function pauseBefore(attempt: number, random: number): number {
  return Math.min(FIRST_PAUSE_MS * 2 ** attempt, LONGEST_PAUSE_MS) * (0.75 + random / 2);
}

export class Live {
  #state: LiveState = { status: "connecting", heardAt: null, problem: null };
  #listeners = new Set<LiveListener>();
  #watchers = new Set<() => void>();
  #lastId = "";
  #started = false;
  #resting = false;
  /** Aborts the connection and further attempts. */
  #following: AbortController | null = null;

  get state(): LiveState {
    return this.#state;
  }

  /** Subscribes to the state, for useSyncExternalStore. */
  readonly watch = (watcher: () => void): (() => void) => {
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  };

  listen(listener: LiveListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  start(): void {
    this.#started = true;
    this.#follow();
  }

  /** Closes the stream and forgets its position. */
  stop(): void {
    this.#started = false;
    this.#leave();
    this.#lastId = "";
    this.#set({ status: "connecting", heardAt: null, problem: null });
  }

  /** Closes the connection until `wake`, which resumes at the same position. */
  rest(): void {
    this.#resting = true;
    this.#leave();
    this.#set({ ...this.#state, status: "connecting", problem: null });
  }

  wake(): void {
    this.#resting = false;
    this.#follow();
  }

  #follow(): void {
    if (!this.#started || this.#resting || this.#following) return;
    this.#following = new AbortController();
    void this.#run(this.#following.signal);
  }

  #leave(): void {
    this.#following?.abort();
    this.#following = null;
  }

  async #run(stopped: AbortSignal): Promise<void> {
    for (let attempt = 0; !stopped.aborted; attempt++) {
      let liveAt = Infinity;
      try {
        await this.#connect(stopped, () => (liveAt = performance.now()));
        if (stopped.aborted) return;
        this.#broke("The control plane ended the connection.");
      } catch (error) {
        if (stopped.aborted) return;
        // A new sign-in starts the stream again.
        if (error instanceof ApiError && error.status === 401) return this.#broke(error.message);
        this.#broke(error instanceof ApiError ? error.message : "The connection broke.");
      }
      if (performance.now() - liveAt > STEADY_MS) attempt = 0;
      await sleep(pauseBefore(attempt, Math.random()), stopped);
    }
  }

  async #connect(stopped: AbortSignal, connected: () => void): Promise<void> {
    const silent = new AbortController();
    let timer = setTimeout(() => silent.abort(), SILENCE_MS);
    try {
      const response = await request(`${API}/events`, {
        headers: { Accept: "text/event-stream", ...(this.#lastId && { "Last-Event-ID": this.#lastId }) },
        signal: AbortSignal.any([stopped, silent.signal]),
      });
      if (stopped.aborted) return;
      if (!response.body) throw new ApiError(0, "The live stream has no body");
      connected();
      const resumed = this.#lastId !== "";
      this.#set({ status: "live", heardAt: Date.now(), problem: null });
      this.#tell((listener) => listener.connected?.());
      // Without an id to resume from, changes before this connection were missed.
      if (!resumed) this.#tell((listener) => listener.reset?.());
      const heard = (lastId: string): void => {
        if (stopped.aborted) return;
        clearTimeout(timer);
        timer = setTimeout(() => silent.abort(), SILENCE_MS);
        if (lastId) this.#lastId = lastId;
        this.#state = { ...this.#state, heardAt: Date.now() };
      };
      for await (const event of eventsOf(response.body, heard)) {
        if (stopped.aborted) return;
        if (event.id) this.#lastId = event.id;
        this.#take(event.event, event.data);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #take(name: string, data: string): void {
    if (name === "reset") {
      this.#tell((listener) => listener.reset?.());
      return;
    }
    if (name !== "change" && name !== "transition") return;
    const value: unknown = JSON.parse(data);
    this.#tell((listener) => {
      if (name === "change") listener.change?.(value as Change);
      else listener.transition?.(value as Transition);
    });
  }

  #broke(problem: string): void {
    this.#set({ ...this.#state, status: "broken", problem });
  }

  #tell(say: (listener: LiveListener) => void): void {
    for (const listener of this.#listeners) say(listener);
  }

  #set(state: LiveState): void {
    this.#state = state;
    for (const watcher of this.#watchers) watcher();
  }
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}

/** Live stream of this page. */
export const live = new Live();
