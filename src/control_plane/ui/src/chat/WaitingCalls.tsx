import type { ReactElement } from "react";

import { escapeHidden } from "./hidden.ts";
import type { Approval } from "./stream.ts";

/** Calls of tools that wait, each with its arguments. */
export function WaitingCalls({ calls }: Pick<Approval, "calls">): ReactElement {
  return (
    <>
      {calls.map((call) => (
        <div key={call.id} data-tool={call.name}>
          <code>{escapeHidden(call.name)}</code>
          <pre className="code" tabIndex={0}>
            {escapeHidden(call.args)}
          </pre>
        </div>
      ))}
    </>
  );
}
