/** Cluster and control plane of the tests; both are real. */

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtemp } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

function variable(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set: run these tests by 'hack/ui browser'`);
  return value;
}

/** Authentication of the control plane. */
export type Auth = "kubernetes" | "none";

/** Settings from `hack/ui browser`. */
export const places = {
  kubectl: () => variable("RECIF_KUBECTL"),
  recif: () => variable("RECIF_PROGRAM"),
  gateway: () => variable("RECIF_GATEWAY_URL"),
};

export async function kubectl(...args: string[]): Promise<string> {
  const { stdout } = await run(places.kubectl(), args, { maxBuffer: 16 << 20 });
  return stdout;
}

/** Applies objects, given as JSON, by one server-side apply. */
export async function apply(...objects: object[]): Promise<void> {
  const child = spawn(places.kubectl(), ["apply", "--server-side", "--force-conflicts", "-f", "-"], { stdio: ["pipe", "ignore", "pipe"] });
  let said = "";
  child.stderr.on("data", (data) => (said += String(data)));
  child.stdin.end(JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }));
  const code = await new Promise((resolve) => child.on("close", resolve));
  if (code !== 0) throw new Error(`kubectl apply: ${said}`);
}

export function object(namespace: string, kind: string, name: string, spec: object): object {
  return { apiVersion: "agents.recif.dev/v1", kind, metadata: { namespace, name }, spec };
}

export async function token(namespace: string, account: string): Promise<string> {
  return (await kubectl("-n", namespace, "create", "token", account)).trim();
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  if (address === null || typeof address === "string") throw new Error("no free port");
  return address.port;
}

/** Control plane on a loopback port, with a database of its own, which can be stopped and started again. */
export class ControlPlane {
  readonly url: string;
  #port: number;
  #auth: Auth;
  #folder: string;
  #process: ChildProcess | null = null;
  #log = "";

  private constructor(port: number, auth: Auth, folder: string) {
    this.#port = port;
    this.#auth = auth;
    this.#folder = folder;
    this.url = `http://127.0.0.1:${port}`;
  }

  static async start(auth: Auth): Promise<ControlPlane> {
    const one = new ControlPlane(await freePort(), auth, await mkdtemp(join(tmpdir(), "recif-ui-")));
    await one.start();
    return one;
  }

  async start(): Promise<void> {
    const admin = `127.0.0.1:${await freePort()}`;
    const where = ["--bind", `127.0.0.1:${this.#port}`, "--admin-bind", admin, "--data-dir", this.#folder];
    const args = [places.recif(), "control-plane", ...where, "--auth", this.#auth, "--gateway-url", places.gateway()];
    // Killed with this process, however that ends.
    const child = spawn("setpriv", ["--pdeathsig", "KILL", ...args], { stdio: ["ignore", "pipe", "pipe"] });
    this.#process = child;
    const keep = (data: unknown): void => void (this.#log = (this.#log + String(data)).slice(-4000));
    child.stdout.on("data", keep);
    child.stderr.on("data", keep);
    child.on("error", keep);
    try {
      await until("the control plane to be ready", async () => {
        if (child.exitCode !== null) throw new Error("the control plane ended");
        return (await fetch(`http://${admin}/readyz`).catch(() => null))?.ok ?? false;
      });
    } catch (error) {
      await this.stop();
      throw new Error(`${String(error)}\n${this.#log}`);
    }
  }

  async stop(): Promise<void> {
    const child = this.#process;
    this.#process = null;
    if (!child || child.exitCode !== null || child.pid === undefined) return;
    const ended = new Promise((resolve) => child.on("close", resolve));
    child.kill("SIGKILL");
    await ended;
  }
}

/** Waits until `holds`, for two minutes at most. */
export async function until(what: string, holds: () => Promise<boolean>): Promise<void> {
  const deadline = Date.now() + 120_000;
  while (!(await holds())) {
    if (Date.now() > deadline) throw new Error(`waited two minutes for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
