/**
 * State of the objects as far as the graph shows it. A status is written far more often than an object is created, deleted,
 * enters another phase or gets another spec, and each reload of the graph reads all of it.
 */

import type { Change } from "./types.ts";

export class Drawn {
  #last = new Map<string, string>();

  /** Reports whether a change may alter the graph. The first change of an object may. */
  altered({ type, object: { kind, namespace, name, uid, phase, generation } }: Change): boolean {
    const key = `${kind}/${namespace}/${name}`;
    const now = type === "deleted" ? "" : `${uid} ${phase} ${generation}`;
    const before = this.#last.get(key);
    this.#last.set(key, now);
    return now !== before;
  }

  /** Forgets all states, after missed changes or while no page shows the graph. */
  forget(): void {
    this.#last.clear();
  }
}
