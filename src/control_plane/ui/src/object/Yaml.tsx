import { type ReactElement, useMemo } from "react";
import { stringify } from "yaml";

import type { KubeObject } from "../api/types.ts";
import { Card, CopyButton } from "../shell/parts.tsx";

/** Shows the object as YAML; the control plane has masked the secrets. */
export default function Yaml({ object }: { object: KubeObject }): ReactElement {
  const text = useMemo(() => stringify(object, { lineWidth: 0, aliasDuplicateObjects: false }), [object]);
  return (
    <Card title="YAML" aside={<CopyButton text={() => text} />} flush>
      <pre className="code yaml" tabIndex={0} aria-label="YAML">
        {text.split("\n").map((line, index) => (
          <Line key={index} text={line} />
        ))}
      </pre>
    </Card>
  );
}

/** Shows a line of YAML with its key highlighted. */
function Line({ text }: { text: string }): ReactElement {
  const key = /^(\s*(?:- )?)([\w./-]+|"[^"]*")(:)(\s.*|$)/.exec(text);
  if (!key) return <>{`${text}\n`}</>;
  return (
    <>
      {key[1]}
      <span className="key">{key[2]}</span>
      {`${key[3]}${key[4]}\n`}
    </>
  );
}
