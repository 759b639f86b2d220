"""Measures the control plane against the API server's own LIST, with many agents and many clients of the event stream.

CPU and memory are read from /proc, times are measured by the clients. A missed goal is exit code 1.
"""

import argparse
import asyncio
import base64
import concurrent.futures
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

KIND = "/apis/agents.recif.dev/v1"
NAMESPACES = [f"team-{number}" for number in range(10)]
PORT = 8780
ADMIN_PORT = 8781
TICK = 1 / os.sysconf("SC_CLK_TCK")


class Api:
    """Client of the API server with the user of the kubeconfig; one connection per thread."""

    def __init__(self):
        config = json.loads(subprocess.check_output(["kubectl", "config", "view", "--raw", "-o", "json"]))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.url = urllib.parse.urlparse(cluster["server"])
        self.context = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
        self.headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        if "client-certificate-data" in user:
            with tempfile.NamedTemporaryFile() as pem:
                pem.write(base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"]))
                pem.flush()
                self.context.load_cert_chain(pem.name)
        self.local = threading.local()

    def send(self, method, path, body=None, kind="application/json"):
        if not hasattr(self.local, "connection"):
            self.local.connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, context=self.context)
        connection = self.local.connection
        sent = (method, path, json.dumps(body) if body is not None else None, self.headers | {"Content-Type": kind})
        try:
            connection.request(*sent)
            answer = connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError):
            # The API server has closed the idle connection.
            connection.close()
            connection.request(*sent)
            answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 400 and answer.status != 409:
            sys.exit(f"{method} {path}: {answer.status} {text[:300]}")
        return text


def status(number, step):
    """Returns a status as the operator writes it."""
    now, name = f"2026-01-01T00:{step % 60:02}:00Z", f"agent-{number:05}"
    phases = ["", "Pending", "Resolving", "Rendering", "Deploying", "Running"]
    history = [
        {"seq": seq, "at": now, "from": phases[seq - 1], "to": phases[seq], "action": "deploy", "tookMs": 12,
         "reason": "the configuration is written: applied=ServiceAccount applied=ConfigMap", "traceId": f"{number * 7919 + seq:032x}"}
        for seq in range(1, 6)
    ]
    condition = lambda kind, value: {"type": kind, "status": value, "reason": "Running", "message": f"step {step}",
                                     "observedGeneration": 1, "lastTransitionTime": now}
    children = [{"kind": kind, "name": name, "uid": f"{number:032x}", "inputs": f"{number:064x}", "owned": f"{number:064x}"}
                for kind in ["ServiceAccount", "ConfigMap", "Deployment", "Service"]]
    return {"phase": "Running", "observedGeneration": 1, "replicas": 1, "currentReplicas": 1, "children": children,
            "specDigest": f"{number:064x}", "contentHash": f"{number:064x}", "history": history, "inputs": {"Tool/shared": f"{number:064x}"},
            "endpoint": f"http://{name}.team.svc.cluster.local:8000", "selector": f"app.kubernetes.io/name={name},recif.dev/agent={name}",
            "conditions": [condition("Ready", "True"), condition("Reconciling", "False"), condition("Stalled", "False"),
                           condition("Available", "True"), condition("ReferencesResolved", "True")]}


def place(number):
    return f"{KIND}/namespaces/{NAMESPACES[number % len(NAMESPACES)]}/agents"


def make(api, number):
    name = f"agent-{number:05}"
    spec = {"name": name, "framework": "corail", "tools": ["shared"], "systemPrompt": "You are a helpful assistant. " * 8}
    api.send("POST", place(number), {"apiVersion": "agents.recif.dev/v1", "kind": "Agent", "metadata": {"name": name}, "spec": spec})
    touch(api, number, 0)


def touch(api, number, step):
    path = f"{place(number)}/agent-{number:05}/status"
    api.send("PATCH", path, {"status": status(number, step)}, "application/merge-patch+json")


def cpu(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * TICK


def memory(pid):
    line = next(line for line in open(f"/proc/{pid}/status") if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def pid_of(name):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open(f"/proc/{pid}/comm").read().strip() == name[:15]:
                return int(pid)
        except OSError:
            pass
    sys.exit(f"no process {name}")


def measure(pid, times, ask):
    """Returns the CPU time of one request, without that of an idle process, and the 99th percentile of its duration; both in seconds."""
    begin, at = cpu(pid), time.monotonic()
    time.sleep(3)
    idle = (cpu(pid) - begin) / (time.monotonic() - at)
    ask()
    took, begin, at = [], cpu(pid), time.monotonic()
    for _ in range(times):
        start = time.monotonic()
        ask()
        took.append(time.monotonic() - start)
    used = cpu(pid) - begin - idle * (time.monotonic() - at)
    return max(used, TICK) / times, sorted(took)[int(len(took) * 0.99)]


def plain(connection, path):
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text[:300]
    return text


async def follow(counter):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT, limit=1 << 20)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    while piece := await reader.read(1 << 16):
        counter[0] += piece.count(b"event: change")


async def crowd(api, pid, watchers, changes):
    """Returns CPU per change and watcher in microseconds, memory per watcher in KiB, and the share of received changes."""
    before, counter = memory(pid), [0]
    tasks = []
    for number in range(watchers):
        tasks.append(asyncio.create_task(follow(counter)))
        if number % 100 == 99:
            await asyncio.sleep(0.2)
    await asyncio.sleep(3)
    begin = cpu(pid)
    for number in range(changes):
        await asyncio.to_thread(touch, api, number, number + 1)
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    used, after = cpu(pid) - begin, memory(pid)
    for task in tasks:
        task.cancel()
    return used / (changes * watchers) * 1e6, (after - before) * 1024 / watchers, counter[0] / (changes * watchers)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recif", required=True)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=50)
    args = parser.parse_args()
    api = Api()
    print(f"making {args.agents} agents", file=sys.stderr)
    for name in NAMESPACES:
        api.send("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: make(api, number), range(args.agents)))
    log = tempfile.TemporaryFile()
    command = [args.recif, "control-plane", "--auth", "none", "--bind", f"127.0.0.1:{PORT}"]
    command += ["--admin-bind", f"127.0.0.1:{ADMIN_PORT}"]
    child = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        rows = run(args, api, child)
    finally:
        child.send_signal(signal.SIGTERM)
        child.wait(20)
    print("| what | goal | measured | ok |\n|---|---|---|---|")
    for what, goal, measured, ok in rows:
        print(f"| {what} | {goal} | {measured} | {'yes' if ok else 'NO'} |")
    sys.exit(0 if all(row[3] for row in rows) else 1)


def run(args, api, child):
    deadline = time.monotonic() + 120
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", ADMIN_PORT)
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                break
        except OSError:
            pass
        if child.poll() is not None or time.monotonic() > deadline:
            sys.exit("the control plane does not become ready")
        time.sleep(0.2)
    time.sleep(5)
    rss = memory(child.pid)
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    total = json.loads(plain(connection, "/v1/agents?limit=1"))["total"]
    assert total == args.agents, total
    theirs, their_p99 = measure(pid_of("kube-apiserver"), 40, lambda: api.send("GET", f"{KIND}/agents?limit=500"))
    ours, our_p99 = measure(child.pid, 400, lambda: plain(connection, "/v1/agents?limit=500"))
    sorted_page, _ = measure(child.pid, 200, lambda: plain(connection, "/v1/fleet?limit=500&sort=since&q=agent"))
    per_event, per_watcher, heard = asyncio.run(crowd(api, child.pid, args.watchers, args.changes))
    ms = lambda seconds: f"{seconds * 1000:.2f} ms"
    return [
        (f"page of 500 from {args.agents}, CPU", "≥ 20 × less than LIST", f"{ms(ours)}, LIST {ms(theirs)}: {theirs / ours:.0f} ×", theirs >= 20 * ours),
        ("the same, 99th percentile", "≥ 10 × less than LIST", f"{ms(our_p99)}, LIST {ms(their_p99)}: {their_p99 / our_p99:.0f} ×", their_p99 >= 10 * our_p99),
        ("the same, sorted by time and searched, CPU", "–", ms(sorted_page), True),
        (f"an event to each of {args.watchers} watchers", "≤ 10 µs", f"{per_event:.1f} µs", per_event <= 10),
        ("memory per watcher", "≤ 20 KiB", f"{per_watcher:.1f} KiB", per_watcher <= 20),
        ("changes that each watcher heard", "all", f"{heard * 100:.0f} %", heard >= 1),
        (f"memory with {args.agents} agents", "≤ 120 MB", f"{rss:.0f} MB", rss <= 120),
    ]


main()
