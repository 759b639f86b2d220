import { type FormEvent, type ReactElement, useEffect, useId, useRef, useState } from "react";

import { ApiError, get, setToken } from "../api/client.ts";
import type { Me } from "../api/types.ts";
import { Icon, Logo } from "./icons.tsx";
import { CopyButton } from "./parts.tsx";
import { Notice } from "./states.tsx";

const COMMAND = "kubectl create token <service account>";

/** Form that takes a token, tries it, and keeps it in memory. */
export function SignIn({ why, signedIn }: { why: string | null; signedIn: (me: Me) => void }): ReactElement {
  const [token, setText] = useState("");
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const id = useId();
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    document.title = "Sign in · Récif";
    field.current?.focus();
  }, []);

  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const given = token.trim().replace(/^bearer\s+/i, "");
    if (!given) return setError("Paste a token first.");
    if (/[^\x21-\x7e]/.test(given)) return setError("This is not a token: it has blanks or characters that no token has.");
    setBusy(true);
    setError(null);
    setToken(given);
    try {
      signedIn(await get<Me>("/me"));
    } catch (problem) {
      setToken(null);
      setBusy(false);
      const refused = problem instanceof ApiError && problem.status === 401;
      setError(refused ? "The cluster does not accept this token. It may have expired." : problem instanceof Error ? problem.message : String(problem));
      field.current?.focus();
    }
  };

  return (
    <main className="sign-in">
      <form onSubmit={(event) => void submit(event)} noValidate>
        <div className="brand">
          <Logo size={32} />
          <h1>Récif</h1>
        </div>
        {!isSecureContext && (
          <Notice tone="warn">This connection is not encrypted: others on the network can read your token. Use https, or a port that is forwarded to your own machine.</Notice>
        )}
        {why && <Notice tone="warn">{why}</Notice>}
        <div className="field">
          <label htmlFor={id}>Token</label>
          <input
            ref={field}
            id={id}
            className="input mono"
            type="password"
            autoComplete="off"
            spellCheck={false}
            value={token}
            onChange={(event) => setText(event.target.value)}
            aria-invalid={error !== null}
            aria-describedby={`${id}-error ${id}-help`}
          />
          <div id={`${id}-error`} className="field-error" role="alert">
            {error}
          </div>
        </div>
        <button type="submit" className="button primary" disabled={busy}>
          <Icon name="lock" />
          {busy ? "Signing in …" : "Sign in"}
        </button>
        <div id={`${id}-help`} className="small muted">
          <p>You see what this token may see. It stays in this page's memory: a reload asks for it again.</p>
          <div className="row wrap">
            <code>{COMMAND}</code>
            <CopyButton text={() => COMMAND} />
          </div>
        </div>
      </form>
    </main>
  );
}
