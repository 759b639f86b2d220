/** Samples of the load for the charts, kept while the UI is open, so that leaving a page and coming back loses none. */

export interface Samples {
  /** Seconds of the epoch. */
  at: number[];
  inFlight: (number | null)[];
  pods: (number | null)[];
}

/** Fifteen minutes at one sample a second. */
const KEPT = 900;
const all = new Map<string, Samples>();

export function samplesOf(key: string): Samples {
  let samples = all.get(key);
  if (!samples) all.set(key, (samples = { at: [], inFlight: [], pods: [] }));
  return samples;
}

/** Deletes all samples, for the case that another user signs in. */
export function forgetSamples(): void {
  all.clear();
}

/** Adds a sample; a pause breaks the line. */
export function add(samples: Samples, at: number, inFlight: number | null, pods: number | null): void {
  const last = samples.at.at(-1);
  if (last !== undefined && at <= last) return;
  if (last !== undefined && at - last > 5) push(samples, last + 1, null, null);
  push(samples, at, inFlight, pods);
  while (samples.at.length > KEPT) {
    samples.at.shift();
    samples.inFlight.shift();
    samples.pods.shift();
  }
}

function push(samples: Samples, at: number, inFlight: number | null, pods: number | null): void {
  samples.at.push(at);
  samples.inFlight.push(inFlight);
  samples.pods.push(pods);
}
