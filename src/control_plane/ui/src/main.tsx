import "./styles/base.css";
import "./styles/shell.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { Session } from "./shell/Session.tsx";
import { beginTheme } from "./shell/theme.ts";

beginTheme();
const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <Session />
    </StrictMode>,
  );
}
