"""Measures the cold start of an agent without Pods, several times, and the time of each part of a request.

The parts are read from the API server's audit log, whose clock is that of the same machine.
"""

import datetime
import http.client
import json
import os
import random
import subprocess
import sys
import time

GATEWAY, AUDIT, RUNS = sys.argv[1], sys.argv[2], int(sys.argv[3])
BODY = json.dumps({"message": "hi"})
HEADERS = {"Authorization": f"Bearer {os.environ['TOKEN']}", "Content-Type": "application/json"}
GOALS = {"p50": 2.0, "p99": 3.0}
PARTS = ["asked → scaled", "scaled → Pod made", "made → scheduled", "scheduled → answered"]


def chat():
    connection = http.client.HTTPConnection(GATEWAY, timeout=60)
    connection.request("POST", "/v1/agents/default/sleeper/chat", BODY, HEADERS)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, text


def pods():
    names = subprocess.check_output(["kubectl", "get", "pods", "-l", "recif.dev/agent=sleeper", "-o", "name"], text=True)
    return names.split()


def seconds(stamp):
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


def events(since):
    """Returns the times of the responses to the first writes of the agent's Deployment and Pods since then."""
    found = {}
    with open(AUDIT) as log:
        for line in log:
            event = json.loads(line)
            target, user = event.get("objectRef") or {}, event["user"]["username"]
            at = seconds(event["stageTimestamp"])
            if event["stage"] != "ResponseComplete" or at < since or target.get("namespace") != "default":
                continue
            verb, resource, sub = event["verb"], target.get("resource"), target.get("subresource")
            if verb == "patch" and resource == "deployments" and user.endswith(":recif-operator"):
                found.setdefault("scaled", at)
            elif verb == "create" and resource == "pods" and sub is None:
                found.setdefault("made", at)
            elif verb == "create" and resource == "pods" and sub == "binding":
                found.setdefault("scheduled", at)
    return found


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, round(share * (len(values) - 1)))]


def main():
    deadline = time.time() + 120
    # A new permission is effective only after some seconds.
    while chat()[0] != 200:
        if time.time() > deadline:
            sys.exit("the agent does not answer through the gateway")
        time.sleep(1)
    rows = []
    for run in range(RUNS):
        while pods():
            time.sleep(0.5)
        # Random, so that the request is not in step with the scaler.
        time.sleep(1 + random.random())
        asked = time.time()
        status, text = chat()
        answered = time.time()
        if status != 200:
            sys.exit(f"run {run + 1}: status {status}: {text[:300]!r}")
        time.sleep(0.2)
        seen = events(asked)
        if missing := {"scaled", "made", "scheduled"} - seen.keys():
            sys.exit(f"run {run + 1}: the audit log does not say when the Pod was {' and '.join(sorted(missing))}")
        at = [asked, seen["scaled"], seen["made"], seen["scheduled"], answered]
        rows.append([answered - asked] + [later - earlier for earlier, later in zip(at, at[1:])])
        print(f"  {run + 1:2}: {rows[-1][0]:.2f} s  " + "  ".join(f"{part:.2f}" for part in rows[-1][1:]), flush=True)
    whole = [row[0] for row in rows]
    print("\n| part | p50 | p99 |\n|---|---|---|")
    for name, values in [("request → answer", whole), *zip(PARTS, zip(*[row[1:] for row in rows]))]:
        print(f"| {name} | {percentile(values, 0.5):.2f} s | {percentile(values, 0.99):.2f} s |")
    missed = [name for name, share in (("p50", 0.5), ("p99", 0.99)) if percentile(whole, share) > GOALS[name]]
    for name in missed:
        print(f"{name} is above its goal of {GOALS[name]} s")
    sys.exit(1 if missed else 0)


main()
