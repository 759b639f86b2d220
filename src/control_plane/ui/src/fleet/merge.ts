/**
 * All objects of the fleet, merged from pages of lists and live changes that arrive in any order.
 *
 * The newer resourceVersion wins. Tombstones keep a deleted object deleted, however late a page still contains it. A reading of
 * all pages removes the objects that no page contained, unless a change of them came meanwhile.
 */

import type { Change, Summary } from "../api/types.ts";

/** Limit of the tombstones. */
const REMEMBERED = 20_000;

export function keyOf(object: { kind: string; namespace: string; name: string }): string {
  return `${object.kind}/${object.namespace}/${object.name}`;
}

/** Compares resource versions, which are integers of any size, as text. */
export function isNewer(version: string, other: string): boolean {
  return version.length === other.length ? version > other : version.length > other.length;
}

export class Fleet {
  readonly objects = new Map<string, Summary>();
  /** Keys of the objects that changed, came or went since the consumer last cleared the set. */
  readonly dirty = new Set<string>();
  #deleted = new Set<string>();
  #reading: Set<string> | null = null;

  /** Applies a change; returns false if it brought nothing new. */
  change({ type, object }: Change): boolean {
    return type === "deleted" ? this.#remove(object) : this.#put(object);
  }

  /** Begins a reading of all pages; an unfinished one is discarded. */
  begin(): void {
    this.#reading = new Set();
  }

  page(items: readonly Summary[]): boolean {
    return items.map((item) => this.#put(item)).some(Boolean);
  }

  /** Ends the reading and removes the objects that it did not contain. */
  finish(): boolean {
    const named = this.#reading;
    this.#reading = null;
    if (!named) return false;
    const before = this.objects.size;
    for (const key of this.objects.keys()) if (!named.has(key)) this.#delete(key);
    return this.objects.size !== before;
  }

  #put(object: Summary): boolean {
    if (this.#deleted.has(object.uid)) return false;
    const key = keyOf(object);
    this.#reading?.add(key);
    const known = this.objects.get(key);
    if (known && !isNewer(object.resourceVersion, known.resourceVersion)) return false;
    this.objects.set(key, object);
    this.dirty.add(key);
    return true;
  }

  #remove(object: Summary): boolean {
    this.#deleted.add(object.uid);
    if (this.#deleted.size > REMEMBERED) {
      const [oldest] = this.#deleted;
      if (oldest !== undefined) this.#deleted.delete(oldest);
    }
    const key = keyOf(object);
    // The name may belong to a newer object by now.
    return this.objects.get(key)?.uid === object.uid && this.#delete(key);
  }

  #delete(key: string): boolean {
    this.dirty.add(key);
    return this.objects.delete(key);
  }
}
