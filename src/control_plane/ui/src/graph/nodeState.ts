/** State of a node, in the words and the tone that an object has everywhere. */

import { stateOf, type Tone } from "../api/kinds.ts";
import type { GraphNode } from "../api/types.ts";

export function stateOfNode({ phase, ready, missing }: GraphNode): { text: string; tone: Tone } {
  return missing ? { text: "missing", tone: "bad" } : stateOf(phase, ready);
}
