/**
 * Closes the live stream while the page is hidden.
 *
 * Over HTTP/1.1 a browser opens six connections per origin. A stream occupies one for good, so with six tabs that each keep
 * theirs no request would be answered in any of them.
 */

import type { Live } from "./live.ts";

/** Time for which a hidden page keeps the stream. Opening it again costs one request, and no change is missed. */
export const GRACE_MS = 5_000;

export function restWhileHidden(page: Pick<Document, "hidden" | "addEventListener">, stream: Pick<Live, "rest" | "wake">): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  page.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (page.hidden) timer = setTimeout(() => stream.rest(), GRACE_MS);
    else stream.wake();
  });
  // A tab that is opened in the background does not start the stream.
  if (page.hidden) stream.rest();
}
