import { useCallback, useSyncExternalStore } from "react";

/** Width in pixels up to which the style sheets lay pages out for a phone. */
export const PHONE = 760;

/** Returns whether the window is at most so many pixels wide; false where there is no window. */
export function useNarrow(width: number): boolean {
  const query = `(max-width: ${width}px)`;
  const watch = useCallback(
    (changed: () => void) => {
      const media = matchMedia(query);
      media.addEventListener("change", changed);
      return () => media.removeEventListener("change", changed);
    },
    [query],
  );
  return useSyncExternalStore(watch, () => matchMedia(query).matches, () => false);
}
