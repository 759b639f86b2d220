/**
 * Reads anew what changed: soon, once for changes that come together, and one reading of a sort at a time, each to its end.
 * In a storm of changes the next one would otherwise end a reading before it is there, and a page would never be new.
 */

export type Key = readonly string[];

export class Refresher {
  #read: (key: Key) => Promise<void>;
  #gatherMs: (key: Key) => number;
  #stale = new Set<string>();
  #reading = new Set<string>();

  /** `gatherMs`: so long changes are gathered before this is read. A reading that fails is nobody's business here. */
  constructor(read: (key: Key) => Promise<void>, gatherMs: (key: Key) => number) {
    this.#read = read;
    this.#gatherMs = gatherMs;
  }

  later(key: Key): void {
    const id = key.join("\0");
    this.#stale.add(id);
    if (this.#reading.has(id)) return;
    this.#reading.add(id);
    void this.#refresh(id, key);
  }

  async #refresh(id: string, key: Key): Promise<void> {
    let took = 0;
    while (this.#stale.has(id)) {
      // What takes long is not asked for without a break.
      await new Promise((resolve) => setTimeout(resolve, Math.max(this.#gatherMs(key), took)));
      this.#stale.delete(id);
      const began = performance.now();
      await this.#read(key).catch(() => undefined);
      took = performance.now() - began;
    }
    this.#reading.delete(id);
  }
}
