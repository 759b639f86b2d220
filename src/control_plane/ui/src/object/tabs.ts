// The views of an object, in the order in which they are offered.
export const TABS = ["overview", "machine", "config", "events", "yaml"] as const;
export type Tab = (typeof TABS)[number];
