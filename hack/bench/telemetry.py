"""Measures the gateway at a steady rate of requests, with collectors of traces that behave well and badly.

Each gateway serves alone and has a collector of its own. The collectors take turns, so that a machine that becomes slower meets all
of them; of the rounds the middle counts.
"""

import argparse
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

BACKEND, API, COLLECTOR, LISTEN, ADMIN = 9300, 9301, 9302, 9303, 9304
RATE = 1000
QUEUE, BATCH, RECORDS = 2048, 512, 1024
BACKLOG = 8192
REQUEST = b"GET /v1/agents/bench/a/short HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer bench\r\n\r\n"
# Row, manner of the collector (none: nothing listens), size of the queue, KiB more than beside a collector that takes all.
ROWS = [
    ("no collector is set", None, QUEUE, None),
    ("takes all", "takes", QUEUE, None),
    ("away", "away", QUEUE, 4096),
    ("answers after 1 s", "slow", QUEUE, 4096),
    ("429", "busy", QUEUE, 4096),
    ("400", "refuses", QUEUE, 4096),
    ("answers with 10 MiB", "verbose", QUEUE, 4096),
    ("never answers", "silent", QUEUE, 4096),
    (f"never answers, queue of {BACKLOG}", "silent", BACKLOG, 4096 + 10240),
]

parser = argparse.ArgumentParser()
parser.add_argument("--bin", required=True, type=pathlib.Path, help="folder of recif and backend")
parser.add_argument("--folder", required=True, type=pathlib.Path, help="folder for files")
parser.add_argument("--rounds", type=int, default=3, help="times that each collector is measured")
parser.add_argument("--seconds", type=int, default=12, help="length of each measurement")
ARGS = parser.parse_args()
LOG = open(ARGS.folder / "log", "a")
PROCESSES = []


def start(*command, core=1, **env):
    command = ["taskset", "-c", str(core), *map(str, command)]
    process = subprocess.Popen(command, env={**os.environ, **env}, stdout=LOG, stderr=LOG)
    PROCESSES.append(process)
    return process


def stop(process):
    process.kill()
    process.wait()
    PROCESSES.remove(process)


def python(program, *arguments):
    return start(sys.executable, "-B", pathlib.Path(__file__).with_name(program), *arguments)


def connect():
    """Opens a connection to the gateway, once it serves."""
    deadline = time.monotonic() + 20
    while True:
        try:
            connection = socket.create_connection(("127.0.0.1", LISTEN), timeout=20)
            if ask(connection):
                return connection
        except OSError:
            pass
        if time.monotonic() > deadline:
            sys.exit(f"the gateway does not serve:\n{(ARGS.folder / 'log').read_text()}")
        time.sleep(0.1)


def ask(connection):
    """Sends a request and reads the answer; false: it is not that of the Pod."""
    connection.sendall(REQUEST)
    head, answer = b"", b""
    while not head or len(answer) < length:
        part = connection.recv(4096)
        if not part:
            raise OSError("closed")
        answer += part
        if not head and b"\r\n\r\n" in answer:
            head, answer = answer.split(b"\r\n\r\n", 1)
            length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head).group(1))
    return head.startswith(b"HTTP/1.1 200 ") and answer == b"ok"


def load(connection, seconds):
    """Sends requests at a steady rate. Returns the rate that was reached, and the 99th percentile of the latencies in ms."""
    count, latencies = RATE * seconds, []
    begun = time.perf_counter()
    for number in range(count):
        due = begun + number / RATE
        # Sleeping ends late: the last part of the wait is spun away.
        while (left := due - time.perf_counter()) > 0:
            if left > 0.0003:
                time.sleep(left - 0.0002)
        if not ask(connection):
            sys.exit("a request failed")
        # From when it was due, so that a request that waits for a slow one before it counts in full.
        latencies.append(time.perf_counter() - due)
    took = time.perf_counter() - begun
    return count / took, sorted(latencies)[count * 99 // 100] * 1000


def counters():
    """Returns the spans by what became of them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{ADMIN}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^recif_spans_total\{outcome="(\w+)"\} (\S+)$', text, re.M)
    return {outcome: int(float(count)) for outcome, count in found}


def resident(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def measure(manner, queue):
    """Measures a gateway; returns rate, latency, KiB resident, its counters, and how many spans they have to have."""
    collector = None if manner in (None, "away") else python("collector.py", COLLECTOR, manner)
    env = {"KUBECONFIG": str(ARGS.folder / "kubeconfig"), "OTEL_BSP_MAX_QUEUE_SIZE": str(queue), "RECIF_AUDIT": "off"}
    if manner is not None:
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{COLLECTOR}"
    command = [ARGS.bin / "recif", "gateway", "--listen", f"127.0.0.1:{LISTEN}", "--admin-listen", f"127.0.0.1:{ADMIN}"]
    gateway = start(*command, core=0, **env)
    connection = connect()
    warm = 1
    load(connection, warm)
    rate, latency = load(connection, ARGS.seconds)
    # Spans are made within 50 ms.
    time.sleep(0.5)
    measured = rate, latency, resident(gateway), counters(), RATE * (warm + ARGS.seconds)
    connection.close()
    stop(gateway)
    if collector:
        stop(collector)
    return measured


def row(title, measured, healthy, queue, more):
    """Prints a row; returns whether it meets its goals."""
    rate, latency, memory = (statistics.median(run[place] for run in measured) for place in range(3))
    _, _, _, spans, requests = measured[-1]
    shown = ", ".join(f"{count} {name}" for name, count in sorted(spans.items()) if count)
    line = f"| {title:28} | {rate:8.1f} | {latency:6.3f} | {memory:8.0f} |"
    if more is None:
        # Otherwise the rows below compare gateways that have little to do.
        is_reached = rate >= 0.95 * RATE
        print(f"{line} {'' if is_reached else 'TOO SLOW':10} | {shown}", flush=True)
        return is_reached
    rate_of, latency_of, memory_of = (statistics.median(run[place] for run in healthy) for place in range(3))
    # Those that are counted nowhere have to be waiting.
    waiting = requests - sum(spans.values())
    misses = [
        name
        for name, met in [
            ("rate", rate >= 0.95 * rate_of),
            ("p99", latency <= 1.05 * latency_of),
            ("memory", memory - memory_of <= more),
            ("counted", waiting <= queue + BATCH + RECORDS),
        ]
        if not met
    ]
    verdict = "met" if not misses else "MISSED"
    print(f"{line} {verdict:10} | {shown}{'; missed: ' + ', '.join(misses) if misses else ''}", flush=True)
    return not misses


def main():
    cluster = {"name": "bench", "cluster": {"server": f"http://127.0.0.1:{API}"}}
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
    users = [{"name": "bench", "user": {}}]
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "bench", "users": users}
    config |= {"clusters": [cluster], "contexts": [context]}
    (ARGS.folder / "kubeconfig").write_text(json.dumps(config))
    start(ARGS.bin / "backend", BACKEND)
    python("gateway_api.py", API, BACKEND)
    results = [[] for _ in ROWS]
    for _ in range(ARGS.rounds):
        for (_, manner, queue, _), measured in zip(ROWS, results):
            measured.append(measure(manner, queue))
    print(f"At {RATE} requests a second, {ARGS.rounds} rounds of {ARGS.seconds} s.\n")
    print("| the collector                | requests/s | p99, ms | KiB | goals | spans of the last round |")
    print("|---|---|---|---|---|---|")
    healthy = results[1]
    met = [row(title, measured, healthy, queue, more) for (title, _, queue, more), measured in zip(ROWS, results)]
    return 0 if all(met) else 1


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
try:
    code = main()
finally:
    for process in PROCESSES:
        process.kill()
        process.wait()
sys.exit(code)
