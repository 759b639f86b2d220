/**
 * Throttled invalidation of queries: soon after a change, once for changes that come together, and one reload of a query at a
 * time, each to its end. Otherwise each change of a storm would abort the reload before it, and the page would never be up to
 * date.
 */

export type Key = readonly string[];

export class Refresher {
  #read: (key: Key) => Promise<void>;
  #gatherMs: (key: Key) => number;
  #stale = new Set<string>();
  #reading = new Set<string>();

  /** `gatherMs` returns the time for which changes of a query are gathered. A failed reload is left to the page that shows it. */
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
      // A query that takes long is not repeated without a break.
      await new Promise((resolve) => setTimeout(resolve, Math.max(this.#gatherMs(key), took)));
      this.#stale.delete(id);
      const began = performance.now();
      await this.#read(key).catch(() => undefined);
      took = performance.now() - began;
    }
    this.#reading.delete(id);
  }
}
