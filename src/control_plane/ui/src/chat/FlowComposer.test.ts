import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { createElement } from "react";
import { renderToStaticMarkup } from "react-dom/server";
import { expect, it } from "vitest";

import { objectQuery } from "../api/queries.ts";
import type { KubeObject } from "../api/types.ts";
import { conversationWith } from "./conversation.ts";
import { FlowComposer } from "./FlowComposer.tsx";

const target = { kind: "Flow", namespace: "default", name: "greeter" };
const content = "---\ninput:\n  schema:\n    name: string\n    tone: string\n  default:\n    tone: friendly\n---\nGreet {{name}}.";

it("shows what was typed before, and defaults where nothing was, also after JSON was written", () => {
  const client = new QueryClient();
  client.setQueryData(objectQuery({ plural: "flows", namespace: "default", name: "greeter" }).queryKey, { spec: { prompts: [{ prompt: { content } }] } } as unknown as KubeObject);
  const ignore = (): void => undefined;
  const shown = (inputs: Record<string, Record<string, string>>): string => {
    const props = { conversation: conversationWith(target), target, text: "", setText: ignore, flow: null, setFlow: ignore, inputs, setInputs: ignore };
    return renderToStaticMarkup(createElement(QueryClientProvider, { client }, createElement(FlowComposer, props)));
  };
  const valuesIn = (html: string): (string | undefined)[] => [...html.matchAll(/<input[^>]* value="([^"]*)"/g)].map((match) => match[1]);
  expect(valuesIn(shown({}))).toEqual(["", "friendly"]);
  // The form is mounted anew when the user comes back from JSON: its input is its parent's.
  expect(valuesIn(shown({ [`null ${content}`]: { name: "Ada", tone: "curt" } }))).toEqual(["Ada", "curt"]);
});
