/** States of a page without content: loading, empty, failed, or forbidden. */

import type { ReactElement, ReactNode } from "react";

import { ApiError } from "../api/client.ts";
import { bindCommands, isNamespace } from "./access.ts";
import { Icon, type IconName } from "./icons.tsx";
import { Example } from "./parts.tsx";
import { useSession } from "./session.ts";

export function State({ icon, title, children, action }: { icon: IconName; title: string; children?: ReactNode; action?: ReactNode }): ReactElement {
  return (
    <div className="state" role="status">
      <Icon name={icon} size={32} />
      <h2>{title}</h2>
      {children && <p>{children}</p>}
      {action}
    </div>
  );
}

/** Skeleton lines in place of text that is loading. */
export function Loading({ lines = 5, label = "Loading" }: { lines?: number; label?: string }): ReactElement {
  return (
    <div className="stack" role="status" aria-label={label}>
      {Array.from({ length: lines }, (_, index) => (
        <div key={index} className="skeleton" style={{ width: `${92 - ((index * 23) % 45)}%` }} />
      ))}
    </div>
  );
}

interface FailureProps {
  error: Error;
  retry?: (() => void) | undefined;
  what: string;
  /** Namespace of what is not shown; undefined: it is in several. */
  namespace?: string | undefined;
}

export function Failure({ error, retry, what, namespace }: FailureProps): ReactElement {
  const user = useSession()?.me.user;
  const status = error instanceof ApiError ? error.status : 0;
  const again = retry && (
    <button type="button" className="button" onClick={retry}>
      <Icon name="retry" />
      Try again
    </button>
  );
  if (status === 403) {
    // The namespace comes from the address: a command names none that cannot exist.
    const helps = namespace === undefined || isNamespace(namespace);
    return (
      <State icon="lock" title={`You cannot see ${what}`} action={user && helps && <Access user={user} namespace={namespace} />}>
        {sentence(error.message)}
      </State>
    );
  }
  if (status === 404) {
    return (
      <State icon="empty" title="Not found" action={again}>
        {sentence(error.message)}
      </State>
    );
  }
  return (
    <State icon="warn" title={status ? `${what.charAt(0).toUpperCase()}${what.slice(1)} cannot be shown` : "No answer"} action={again}>
      {sentence(error.message)}
    </State>
  );
}

/** Commands to send to an administrator. */
function Access({ user, namespace }: { user: string; namespace: string | undefined }): ReactElement {
  const commands = bindCommands("recif-view", user, namespace);
  return (
    <div>
      <p>An administrator of the cluster can let {user} see one namespace:</p>
      <Example text={commands.one} />
      <p>Or all of them:</p>
      <Example text={commands.all} />
    </div>
  );
}

/** Problem shown beside content that is still there. */
export function Notice({ tone, icon = "warn", children }: { tone: "bad" | "warn" | "busy" | "good" | "idle"; icon?: IconName; children: ReactNode }): ReactElement {
  return (
    <div className={`notice tone-${tone}`}>
      <Icon name={icon} />
      <div className="grow">{children}</div>
    </div>
  );
}

/** Formats a message of another component as a sentence; names and paths at its beginning stay as they are. */
export function sentence(text: string): string {
  const begun = /^[a-z]+\b(?![./:=-])/.test(text) ? text.charAt(0).toUpperCase() + text.slice(1) : text;
  return /[\p{L}\p{N}"')]$/u.test(begun) ? `${begun}.` : begun;
}
