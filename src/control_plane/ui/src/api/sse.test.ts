import { describe, expect, it } from "vitest";

import { EventParser, eventsOf, type ServerEvent } from "./sse.ts";

function parse(...chunks: string[]): ServerEvent[] {
  const parser = new EventParser();
  return chunks.flatMap((chunk) => parser.push(chunk));
}

const STREAM = ': hello\r\nid: 7-1\r\nevent: change\r\ndata: {"a":1}\r\n\r\ndata: one\ndata:two\n\n\nevent: lost\n\ndata\n\nid: 7-2\rdata: end\r\r';
const EVENTS = [
  { event: "change", data: '{"a":1}', id: "7-1" },
  { event: "message", data: "one\ntwo", id: "7-1" },
  { event: "message", data: "", id: "7-1" },
  { event: "message", data: "end", id: "7-2" },
];

describe("an event stream", () => {
  it("is read as the standard says", () => {
    expect(parse(STREAM)).toEqual(EVENTS);
  });

  it("may be cut anywhere", () => {
    expect(parse(...STREAM)).toEqual(EVENTS);
    for (let at = 1; at < STREAM.length; at++) expect(parse(STREAM.slice(0, at), STREAM.slice(at)), `at ${at}`).toEqual(EVENTS);
  });

  it("may begin with a byte order mark, and an unfinished event is none", () => {
    expect(parse("\uFEFFdata: a\n\ndata: b\n")).toEqual([{ event: "message", data: "a", id: "" }]);
  });

  it("keeps characters whose bytes come apart, and tells the server when it is left", async () => {
    const bytes = new TextEncoder().encode("data: é€\n\ndata: 2\n\n");
    let cancelled = false;
    const body = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const byte of bytes) controller.enqueue(new Uint8Array([byte]));
      },
      cancel() {
        cancelled = true;
      },
    });
    for await (const event of eventsOf(body)) {
      expect(event.data).toBe("é€");
      break;
    }
    expect(cancelled).toBe(true);
  });
});

it("does not keep an event that never ends", () => {
  const endless = (chunk: string) => () => {
    const parser = new EventParser();
    for (let at = 0; at < 9; at++) parser.push(chunk);
  };
  expect(endless("a".repeat(1 << 20))).toThrow(RangeError);
  expect(endless(`data: ${"a".repeat(1 << 20)}\n`)).toThrow(RangeError);
  expect(endless(`data: ${"a".repeat(1 << 20)}\n\n`)).not.toThrow();
});
