import { useQuery } from "@tanstack/react-query";
import { Link, Outlet } from "@tanstack/react-router";
import { type ReactElement, useSyncExternalStore } from "react";

import { troubleOf } from "../activity/feed.ts";
import { live } from "../api/live.ts";
import { historyQuery } from "../api/queries.ts";
import { ago } from "../object/timeline.ts";
import { Icon, type IconName, Logo } from "./icons.tsx";
import { useNow } from "./parts.tsx";
import { useSession } from "./session.ts";
import { sentence } from "./states.tsx";
import { choose, type Theme, useTheme } from "./theme.ts";

const PAGES: { to: string; label: string; icon: IconName }[] = [
  { to: "/", label: "Fleet", icon: "fleet" },
  { to: "/graph", label: "Graph", icon: "graph" },
  { to: "/tools", label: "Tools", icon: "tools" },
  { to: "/chat", label: "Chat", icon: "chat" },
  { to: "/approvals", label: "Approvals", icon: "approvals" },
  { to: "/activity", label: "Activity", icon: "activity" },
  { to: "/usage", label: "Usage", icon: "usage" },
];

/** Frame of all pages: navigation, the state of the connection, and the page. */
export function Shell(): ReactElement {
  const session = useSession();
  return (
    <div className="shell">
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <div className="side">
        <Link to="/" className="brand">
          <Logo />
          Récif
        </Link>
        <nav aria-label="Pages">
          <ul className="nav-list">
            {PAGES.map((page) => (
              <li key={page.to}>
                <Link to={page.to} className="nav-link" activeOptions={{ exact: page.to === "/", includeSearch: false }}>
                  <Icon name={page.icon} />
                  {page.label}
                </Link>
              </li>
            ))}
          </ul>
        </nav>
        <div className="side-foot">
          <LiveBadge />
          <div className="row">
            <span className="grow truncate" title={session?.me.user ?? undefined}>
              {session?.me.user ? shortUser(session.me.user) : "No sign-in needed"}
            </span>
            <ThemeButton />
            <SignOut />
          </div>
        </div>
      </div>
      <div className="main">
        <div className="phone-bar">
          <Link to="/" className="brand">
            <Logo size={20} />
            Récif
          </Link>
          <div className="row">
            <LiveBadge />
            <ThemeButton />
            <SignOut />
          </div>
        </div>
        <StaleBar />
        <main id="main" tabIndex={-1} className="content">
          <Outlet />
        </main>
      </div>
    </div>
  );
}

function SignOut(): ReactElement | null {
  const session = useSession();
  if (session?.me.auth !== "kubernetes") return null;
  return (
    <button type="button" className="button quiet icon" onClick={session.signOut} aria-label="Sign out" title="Sign out">
      <Icon name="out" />
    </button>
  );
}

const NEXT: Record<Theme, { next: Theme; icon: IconName; label: string }> = {
  system: { next: "light", icon: "auto", label: "Theme: as the system. Switch to light" },
  light: { next: "dark", icon: "sun", label: "Theme: light. Switch to dark" },
  dark: { next: "system", icon: "moon", label: "Theme: dark. Switch to the system's" },
};

function ThemeButton(): ReactElement {
  const { next, icon, label } = NEXT[useTheme()];
  return (
    <button type="button" className="button quiet icon" onClick={() => choose(next)} aria-label={label} title={label}>
      <Icon name={icon} />
    </button>
  );
}

/** Returns the last part of system:serviceaccount:default:ada. */
function shortUser(user: string): string {
  return user.startsWith("system:serviceaccount:") ? user.split(":").slice(2).join("/") : user;
}

function LiveBadge(): ReactElement {
  const state = useSyncExternalStore(live.watch, () => live.state);
  const trouble = troubleOf(useQuery(historyQuery()).data);
  const connected = trouble ? ["warn", "History behind"] : ["good", "Live"];
  const [tone, label] = state.status === "live" ? connected : state.status === "broken" ? ["warn", "Reconnecting"] : ["busy", "Connecting"];
  return (
    <span className={`live tone-${tone}`} role="status" data-live={state.status} title={trouble ?? undefined}>
      <span className="live-dot" />
      {label}
    </span>
  );
}

/** Bar with the age of the shown data while the stream is broken. */
function StaleBar(): ReactElement | null {
  const state = useSyncExternalStore(live.watch, () => live.state);
  const now = useNow();
  if (state.status !== "broken") return null;
  const age = state.heardAt === null ? null : now - state.heardAt;
  return (
    <div className="stale">
      <Icon name="warn" />
      <span role="alert">{sentence(state.problem ?? "The connection broke.")} Reconnecting …</span>
      {/* Outside the live region, because it changes each second. */}
      {age !== null && <span className="nums">{`What you see is ${age < 1000 ? "1 s" : ago(age)} old.`}</span>}
    </div>
  );
}
