"""Measures `recif dev` from outside: by its events, by requests through its gateway, and by /proc."""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse

AGENT = """apiVersion: agents.recif.dev/v1
kind: Agent
metadata: {{name: {name}}}
spec: {{name: {name}, framework: corail, modelType: stub, modelId: stub-echo, systemPrompt: "{prompt}"}}
"""
CUSTOM = """apiVersion: agents.recif.dev/v1
kind: Agent
metadata:
  name: {name}
  annotations: {{recif.dev/dev-command: /usr/bin/python3 -S -E -B agent.py}}
spec: {{name: {name}, framework: custom, image: "acme/{name}:1", env: [{{name: TEXT, value: "{text}"}}]}}
"""
SERVER = """apiVersion: agents.recif.dev/v1
kind: MCPServer
metadata: {name: clock}
spec:
  transportType: stdio
  deployment:
    image: recif.local/runner:dev
    cmd: /recif-runner
    args: [mcp]
    env: {CORAIL_TOOLS: '[{"name": "datetime", "type": "builtin", "description": "The time"}]'}
"""
AGENTS = 10
REQUESTS_PER_SECOND, STREAMS = 200, 20
# Each sends a tenth of a second after its last request.
CLIENTS = REQUESTS_PER_SECOND // 10
SOON = 60


class Dev:
    """A running `recif dev`."""

    def __init__(self, arguments, folder, *files):
        self.events = queue.Queue()
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            [arguments.bin / "recif", "dev", "--gateway-port", "0", "--ui-port", "0", "-o", "json", *files],
            cwd=folder, env={"PATH": os.environ["PATH"], "HOME": str(folder)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        RUNNING.append(self)
        threading.Thread(target=self.read, daemon=True).start()
        self.gateway = urllib.parse.urlsplit(self.wait(lambda event: event["event"] == "start")[1]["gateway"])

    def read(self):
        for line in self.process.stdout:
            self.events.put((time.monotonic(), json.loads(line)))

    def wait(self, fits):
        """Returns the next event that fits, and when it came."""
        deadline, seen = time.monotonic() + SOON, []
        while (left := deadline - time.monotonic()) > 0:
            try:
                at, event = self.events.get(timeout=left)
            except queue.Empty:
                break
            if fits(event):
                return at, event
            seen.append(event)
        sys.exit(f"it did not happen in {SOON} s; there was only: {seen}")

    def ready(self):
        """Waits until all is Ready, and returns the seconds since the start."""
        at, event = self.wait(lambda event: event["event"] == "ready")
        if event["except"]:
            sys.exit(f"not all is Ready: {event}")
        return at - self.began

    def replaced(self, name):
        self.wait(lambda event: (event["event"], event.get("object")) == ("phase", f"agent/{name}")
                  and (event["phase"], event["text"]) == ("Running", "replaced"))

    def connect(self):
        return http.client.HTTPConnection(self.gateway.hostname, self.gateway.port, timeout=SOON)

    def processes(self):
        """Returns the processes that it has started, with theirs."""
        parents = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (fields := stat(entry)) and fields[0] != "Z":
                parents[int(entry)] = int(fields[1])
        found = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {self.process.pid}

    def end(self):
        """Presses Ctrl-C, and returns the seconds until it and all that it started is gone."""
        left = self.processes()
        began = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        while self.process.poll() is None or any(runs(pid) for pid in left):
            if time.monotonic() - began > SOON:
                sys.exit(f"it does not end: {left}")
            time.sleep(0.001)
        RUNNING.remove(self)
        return time.monotonic() - began

    def stop(self):
        """Ends it after a failure: a second signal lets it wait for nothing. What does not end is killed."""
        # Two signals of the same number may arrive as one.
        self.process.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            left = self.processes()
            self.process.kill()
            self.process.wait()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


RUNNING = []


def interrupted(number, _):
    """Ends this program by a signal. A further one does not keep it from ending what it started."""
    for other in (signal.SIGINT, signal.SIGTERM):
        signal.signal(other, lambda *_: None)
    sys.exit(128 + number)


def stat(pid):
    """Returns state, parent and more of a process; nothing of one that is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def runs(pid):
    fields = stat(pid)
    return bool(fields) and fields[0] != "Z"


def words(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return [""]


def memory(pids):
    """Returns the largest RSS and PSS of these processes in MiB."""
    rows = []
    for pid in pids:
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        rows.append((kib["Rss"] / 1024, kib["Pss"] / 1024))
    return max(rows), len(rows)


def cpu(pids):
    """Returns the seconds of CPU time that these processes have had."""
    # The kernel's number for the clock of a whole process, threads that have ended among them, as of clock_getcpuclockid.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def ask(connection, name, message, accept="application/json"):
    """Sends a message and returns status and text of the answer."""
    headers = {"Content-Type": "application/json", "Accept": accept}
    connection.request("POST", f"/v1/agents/default/{name}/chat", json.dumps({"message": message}), headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def save(file, text):
    """Saves a file as an editor does: another one takes its place."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, round(share * (len(values) - 1)))]


class Report:
    def __init__(self):
        self.rows, self.missed = [], []

    def row(self, what, measured, goal=None, unit="", more=""):
        """Adds a row; the goal is the most that it may be."""
        shown = f"{measured:.3g}{unit}"
        if goal is not None and measured > goal:
            self.missed.append(what)
            shown = f"**{shown}**"
        self.rows.append((what, "–" if goal is None else f"≤ {goal:g}{unit}", shown + more))
        print(f"  {what}: {shown}{more}", flush=True)

    def print(self):
        print("\n| what | goal | measured |\n|---|---|---|")
        for row in self.rows:
            print("| " + " | ".join(row) + " |")


def folder(arguments, name):
    path = arguments.folder / name
    path.mkdir(parents=True)
    return path


def measure_starts(arguments, report):
    """Measures start and end of the sample, each time in a new folder."""
    ready, answered, ended = [], [], []
    for number in range(arguments.starts):
        dev = Dev(arguments, folder(arguments, f"start-{number}"))
        ready.append(dev.ready())
        status, text = ask(dev.connect(), "my-agent", "hello")
        answered.append(time.monotonic() - dev.began)
        if status != 200:
            sys.exit(f"the sample answers {status}: {text}")
        ended.append(dev.end())
    report.row("start → sample Ready", percentile(ready, 0.5), 0.5, " s", f" (at most {max(ready):.3g})")
    report.row("start → first answer of a chat", percentile(answered, 0.5), 1, " s", f" (at most {max(answered):.3g})")
    report.row("Ctrl-C, nothing in flight → all gone", max(ended), 0.5, " s", f" (of {len(ended)}, the longest)")


def measure_saves(arguments, report):
    """Measures the time from a save until the answer of a process that has its content."""
    where = folder(arguments, "saves")
    file = where / "a.yaml"
    save(file, AGENT.format(name="a", prompt="number 0"))
    dev = Dev(arguments, where, "a.yaml")
    dev.ready()
    connection, took = dev.connect(), []
    for number in range(1, arguments.reloads + 1):
        # Random, so that the save is not in step with anything.
        time.sleep(0.1 + random.random() / 10)
        began = time.monotonic()
        save(file, AGENT.format(name="a", prompt=f"number {number}"))
        while True:
            status, text = ask(connection, "a", "/prompt")
            if status == 200 and json.loads(text)["reply"] == f"number {number}":
                break
            if status != 200 or time.monotonic() - began > SOON:
                sys.exit(f"save {number}: the answer is {status}: {text}")
            time.sleep(0.002)
        took.append((time.monotonic() - began) * 1000)
        dev.replaced("a")
    dev.end()
    report.row("saved → new process answers, p50", percentile(took, 0.5), 200, " ms")
    report.row("saved → new process answers, p99", percentile(took, 0.99), 300, " ms", f" of {len(took)}")


class Load:
    """Clients that send requests at a fixed rate, and ones that open one stream after the other."""

    def __init__(self, dev):
        self.dev, self.stops, self.lock = dev, threading.Event(), threading.Lock()
        self.requests, self.streams, self.failures = 0, 0, []
        self.began = time.monotonic()
        self.clients = [threading.Thread(target=self.send, args=(number / CLIENTS / 10,)) for number in range(CLIENTS)]
        self.clients += [threading.Thread(target=self.follow) for _ in range(STREAMS)]
        for client in self.clients:
            client.start()

    def one(self, connection, accept, end):
        try:
            status, text = ask(connection, "x", "hello", accept)
            failure = None if status == 200 and text.endswith(end) else f"{status}: {text[-200:]}"
        except (OSError, http.client.HTTPException) as error:
            failure = repr(error)
            connection.close()
        with self.lock:
            if failure:
                self.failures.append(failure)
            elif end:
                self.streams += 1
            else:
                self.requests += 1

    def send(self, after):
        connection, at = self.dev.connect(), self.began + after
        while not self.stops.is_set():
            time.sleep(max(0, at - time.monotonic()))
            at += 0.1
            self.one(connection, "application/json", "")

    def follow(self):
        connection = self.dev.connect()
        while not self.stops.is_set():
            self.one(connection, "text/event-stream", "data: end\n\n")

    def end(self):
        self.stops.set()
        for client in self.clients:
            client.join()
        return time.monotonic() - self.began


def measure_load(arguments, report):
    """Counts the requests and streams that fail while the program is replaced again and again."""
    where = folder(arguments, "load")
    shutil.copy(arguments.program, where / "agent.py")
    file = where / "x.yaml"
    save(file, CUSTOM.format(name="x", text="number 0"))
    dev = Dev(arguments, where, "x.yaml")
    dev.ready()
    load = Load(dev)
    try:
        for number in range(1, arguments.reloads + 1):
            save(file, CUSTOM.format(name="x", text=f"number {number}"))
            dev.replaced("x")
    finally:
        seconds = load.end()
    dev.end()
    for failure in load.failures[:5]:
        print(f"  failed: {failure}")
    report.row(f"failed during {arguments.reloads} reloads", len(load.failures), 0, "",
               f" of {load.requests} requests ({load.requests / seconds:.0f} a second) and {load.streams} streams")


def measure_rest(arguments, report):
    """Measures memory and CPU time with ten agents and a server over stdio."""
    where = folder(arguments, "rest")
    for number in range(AGENTS):
        save(where / f"agent-{number}.yaml", AGENT.format(name=f"agent-{number}", prompt="Be brief"))
    save(where / "clock.yaml", SERVER)
    dev = Dev(arguments, where, ".")
    report.row(f"start → {AGENTS} agents and an MCPServer Ready", dev.ready(), None, " s")
    for number in range(AGENTS):
        ask(dev.connect(), f"agent-{number}", "hello")
    time.sleep(arguments.seconds / 2)
    kinds = {"platform": {dev.process.pid}, "sidecar": set(), "bridge": set(), "runner": set()}
    for pid in dev.processes():
        program, *rest = words(pid)
        program = os.path.basename(program)
        if program == "recif-proxy":
            kinds["bridge" if "mcp-bridge" in rest else "sidecar"].add(pid)
        elif program == "recif-runner" and "mcp" not in rest:
            kinds["runner"].add(pid)
    for kind, goal in (("platform", 60), ("sidecar", 5), ("bridge", 5), ("runner", 15)):
        (rss, pss), count = memory(kinds[kind])
        name = f"memory of the {kind} with {AGENTS} agents" if kind == "platform" else f"memory of a {kind}"
        report.row(name, rss, goal, " MB", f" RSS, {pss:.3g} MB PSS" + (f" (of {count}, the largest)" if count > 1 else ""))
    everything = dev.processes() | {dev.process.pid}
    before, began = cpu(everything), time.monotonic()
    time.sleep(arguments.seconds)
    share = (cpu(everything) - before) / (time.monotonic() - began) * 100
    report.row(f"CPU at rest, {AGENTS} agents", share, 1, " % of a core", f", {len(everything)} processes")
    report.row(f"Ctrl-C with {AGENTS} agents → all gone", dev.end(), None, " s")


def measure_size(arguments, report):
    without = arguments.bin / "without-local/recif"
    if without.exists():
        larger = ((arguments.bin / "recif").stat().st_size - without.stat().st_size) / 1e6
        report.row("`recif` larger by feature `local`", larger, 3, " MB", f", without it {without.stat().st_size / 1e6:.3g} MB")


def main():
    parser = argparse.ArgumentParser(prog="hack/bench/dev", description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of the programs")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="folder that it makes for its files")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="the program of an agent")
    parser.add_argument("--starts", type=int, default=5, help="starts of the sample")
    parser.add_argument("--reloads", type=int, default=50, help="saves of each measurement")
    parser.add_argument("--seconds", type=float, default=10, help="how long the CPU at rest is looked at")
    arguments = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    report = Report()
    try:
        for measure in (measure_starts, measure_saves, measure_load, measure_rest, measure_size):
            measure(arguments, report)
    finally:
        for dev in RUNNING[:]:
            dev.stop()
    report.print()
    if report.missed:
        sys.exit("missed: " + ", ".join(report.missed))


main()
