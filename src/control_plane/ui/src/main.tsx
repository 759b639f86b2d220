import "./styles/base.css";
import "./styles/shell.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { live } from "./api/live.ts";
import { restWhileHidden } from "./api/rest.ts";
import { Session } from "./shell/Session.tsx";
import { beginTheme } from "./shell/theme.ts";

beginTheme();
restWhileHidden(document, live);
const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Session />
    </StrictMode>,
  );
}
