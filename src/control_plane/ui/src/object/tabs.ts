// Views of an object, in the order of their tabs.
export const TABS = ["overview", "machine", "config", "events", "yaml"] as const;
export type Tab = (typeof TABS)[number];
