/**
 * Server-sent events from a `fetch`, because EventSource cannot send a token.
 *
 * The parser follows the HTML standard, "Interpreting an event stream": lines end by CR, LF or CRLF, independent of chunk
 * borders; an event without data is not dispatched; an id is kept until the next one.
 */

export interface ServerEvent {
  /** "message" if the stream names none. */
  event: string;
  data: string;
  /** The last id seen so far. */
  id: string;
}

/** Limit of the characters in one event; a page could not show more. */
const LONGEST = 8 << 20;

/** Incremental parser of an event stream. */
export class EventParser {
  #rest = "";
  #afterReturn = false;
  #event = "";
  #data: string[] = [];
  #id = "";
  #lastId = "";
  #begun = false;
  #held = 0;

  /** Returns the id of the last complete block, including blocks with an id only: the position for resuming the stream. */
  get lastId(): string {
    return this.#lastId;
  }

  /** Parses a chunk and returns the events that it completes; throws a RangeError for an event over the limit. */
  push(chunk: string): ServerEvent[] {
    let text = chunk;
    if (!this.#begun && text) {
      this.#begun = true;
      if (text.startsWith("\uFEFF")) text = text.slice(1);
    }
    const events: ServerEvent[] = [];
    let start = 0;
    for (let at = 0; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code !== 10 && code !== 13) {
        this.#afterReturn = false;
        continue;
      }
      // The LF of a CRLF, whose CR may have been in the chunk before.
      if (code === 10 && this.#afterReturn) {
        this.#afterReturn = false;
        start = at + 1;
        continue;
      }
      this.#afterReturn = code === 13;
      const line = this.#rest + text.slice(start, at);
      this.#rest = "";
      start = at + 1;
      const event = this.#line(line);
      if (event) events.push(event);
    }
    this.#rest += text.slice(start);
    if (this.#held + this.#rest.length > LONGEST) throw new RangeError("An event of the answer does not end.");
    return events;
  }

  #line(line: string): ServerEvent | null {
    if (line === "") {
      this.#lastId = this.#id;
      const event = this.#data.length ? { event: this.#event || "message", data: this.#data.join("\n"), id: this.#id } : null;
      this.#event = "";
      this.#data = [];
      this.#held = 0;
      return event;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") {
      this.#data.push(value);
      this.#held += value.length;
    }
    if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return null;
  }
}

/** Iterates over the events of a body; `heard` is called after each chunk, comments included, with the last id. Ends with the body. */
export async function* eventsOf(body: ReadableStream<Uint8Array>, heard?: (lastId: string) => void): AsyncGenerator<ServerEvent> {
  const parser = new EventParser();
  const decoder = new TextDecoder();
  const reader = body.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield* parser.push(decoder.decode(value, { stream: true }));
      heard?.(parser.lastId);
    }
  } finally {
    // Also if the consumer stops early, so that the server learns of it.
    reader.cancel().catch(() => undefined);
  }
}
