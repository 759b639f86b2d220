/**
 * What the graph is drawn from, of the objects that changed: a status is written far more often than an object comes, goes,
 * enters another phase or gets another spec, and the whole graph is read for it.
 */

import type { Change } from "./types.ts";

export class Drawn {
  #last = new Map<string, string>();

  /** Whether a change may alter the graph. The first one of an object may. */
  altered({ type, object: { kind, namespace, name, uid, phase, generation } }: Change): boolean {
    const key = `${kind}/${namespace}/${name}`;
    const now = type === "deleted" ? "" : `${uid} ${phase} ${generation}`;
    const before = this.#last.get(key);
    this.#last.set(key, now);
    return now !== before;
  }

  /** Changes were missed, or nobody looks. */
  forget(): void {
    this.#last.clear();
  }
}
