/** Context with the signed-in user, for the pages below the session. */

import { createContext, useContext } from "react";

import type { Me } from "../api/types.ts";

export interface SessionValue {
  me: Me;
  signOut: () => void;
}

export const SessionContext = createContext<SessionValue | null>(null);

export function useSession(): SessionValue | null {
  return useContext(SessionContext);
}
