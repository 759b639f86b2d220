/** State of a node, in the words and the tone that an object has everywhere. */

import { stateOf, type Tone } from "../api/kinds.ts";
import type { GraphNode } from "../api/types.ts";

interface NodeState {
  text: string;
  tone: Tone;
}

export function stateOfNode({ phase, ready, missing }: GraphNode): NodeState {
  return missing ? { text: "missing", tone: "bad" } : stateOf(phase, ready);
}

/** Returns the state of a node; undefined: only its name is known, as of a Secret, or of an object that the user may not see. */
export function knownStateOfNode(node: GraphNode): NodeState | undefined {
  return node.missing || node.phase ? stateOfNode(node) : undefined;
}
