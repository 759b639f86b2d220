/**
 * Lets the live stream go while nobody looks at the page.
 *
 * A browser gives an origin six connections over HTTP/1.1. A stream keeps one for good, so that with six tabs that each keep
 * theirs nothing would be answered in any of them any more.
 */

import type { Live } from "./live.ts";

/** Who is away for less keeps the stream. To get it back costs one request, and nothing is missed. */
export const GRACE_MS = 5_000;

export function restWhileHidden(page: Pick<Document, "hidden" | "addEventListener">, stream: Pick<Live, "rest" | "wake">): void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  page.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (page.hidden) timer = setTimeout(() => stream.rest(), GRACE_MS);
    else stream.wake();
  });
  // A tab that is opened behind another one does not even begin.
  if (page.hidden) stream.rest();
}
