/**
 * Session: identifies the user before anything is shown. A control plane without sign-in admits every user; otherwise the user
 * enters a token.
 *
 * When the token is refused later, the user signs in again and returns to the same page.
 */

import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { type ReactElement, useCallback, useEffect, useMemo, useState } from "react";

import { ApiError, get, onRefused, setToken } from "../api/client.ts";
import { live } from "../api/live.ts";
import { queryClient } from "../api/queries.ts";
import type { Me } from "../api/types.ts";
import { router } from "../app.tsx";
import { forgetConversations } from "../chat/conversation.ts";
import { fleet } from "../fleet/store.ts";
import { forgetSamples } from "../object/samples.ts";
import { Icon, Logo } from "./icons.tsx";
import { SessionContext } from "./session.ts";
import { SignIn } from "./SignIn.tsx";
import { Loading, sentence, State } from "./states.tsx";

type Stage = { at: "asking" } | { at: "out"; why: string | null } | { at: "in"; me: Me } | { at: "broken"; error: string };

export function Session(): ReactElement {
  const [stage, setStage] = useState<Stage>({ at: "asking" });

  const ask = useCallback(async (): Promise<void> => {
    setStage({ at: "asking" });
    // Without sign-in this already loads the first rows.
    fleet.open();
    try {
      setStage({ at: "in", me: await get<Me>("/me") });
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) {
        fleet.clear();
        setStage({ at: "out", why: null });
      } else setStage({ at: "broken", error: error instanceof Error ? error.message : String(error) });
    }
  }, []);
  useEffect(() => void ask(), [ask]);

  const leave = useCallback((why: string | null) => {
    setToken(null);
    live.stop();
    fleet.clear();
    queryClient.clear();
    forgetConversations();
    forgetSamples();
    setStage({ at: "out", why });
  }, []);
  const inside = stage.at === "in";
  useEffect(() => {
    if (!inside) return;
    live.start();
    fleet.open();
    return onRefused(() => leave("Your token is no longer accepted. Sign in again to continue where you were."));
  }, [inside, leave]);

  const value = useMemo(() => (stage.at === "in" ? { me: stage.me, signOut: () => leave(null) } : null), [stage, leave]);

  switch (stage.at) {
    case "asking":
      return <Asking />;
    case "out":
      return <SignIn why={stage.why} signedIn={(me) => setStage({ at: "in", me })} />;
    case "broken":
      return (
        <main className="sign-in">
          <State
            icon="warn"
            title="No answer"
            action={
              <button type="button" className="button" onClick={() => void ask()}>
                <Icon name="retry" />
                Try again
              </button>
            }
          >
            {sentence(stage.error)}
          </State>
        </main>
      );
    case "in":
      return (
        <SessionContext value={value}>
          <QueryClientProvider client={queryClient}>
            <RouterProvider router={router} />
          </QueryClientProvider>
        </SessionContext>
      );
  }
}

/** Shows nothing at first, because the response should come within a moment. */
function Asking(): ReactElement {
  return (
    <main className="asking">
      <div className="asking-mark late">
        <Logo size={40} />
        <Loading lines={3} label="Connecting to the control plane" />
      </div>
      <p className="muted later">The control plane takes long to answer …</p>
    </main>
  );
}
