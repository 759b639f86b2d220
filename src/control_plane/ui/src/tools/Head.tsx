/** Head of a server or Tool beside the list: the way back to it, the name, and why it is not as its spec asks. */

import { Link } from "@tanstack/react-router";
import type { ReactElement, ReactNode } from "react";

import { toneOf } from "../api/kinds.ts";
import type { Summary, ToolServer } from "../api/types.ts";
import { Icon } from "../shell/icons.tsx";
import { ObjectLink } from "../shell/parts.tsx";
import { Notice } from "../shell/states.tsx";

export function Head({ object, children }: { object: Summary | ToolServer; children: ReactNode }): ReactElement {
  const { kind, namespace, name, phase, why } = object;
  return (
    <>
      <div className="detail-head">
        <Link to="/tools" className="button quiet back">
          <Icon name="right" />
          All tools
        </Link>
        <h2 className="truncate">
          <ObjectLink kind={kind} namespace={namespace} name={name} />
        </h2>
        {children}
      </div>
      {why && <Notice tone={toneOf(phase) === "bad" ? "bad" : "busy"}>{why}</Notice>}
    </>
  );
}
