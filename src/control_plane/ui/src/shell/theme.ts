/** Theme: light or dark, by the system or by the user's choice, which is all that this UI stores. */

import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";
const KEY = "recif-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
const watchers = new Set<() => void>();

let chosen: Theme = read();

function read(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    // Storage is disabled: the choice lasts until the next reload.
    return "system";
  }
}

function apply(): void {
  const dark = chosen === "dark" || (chosen === "system" && system.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  for (const watcher of watchers) watcher();
}

export function beginTheme(): void {
  apply();
  system.addEventListener("change", apply);
}

export function choose(theme: Theme): void {
  chosen = theme;
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is disabled.
  }
  apply();
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function useTheme(): Theme {
  return useSyncExternalStore(watch, () => chosen);
}

/** Returns whether the page is dark, for components that paint on a canvas. */
export function useIsDark(): boolean {
  return useSyncExternalStore(watch, () => document.documentElement.dataset.theme === "dark");
}
