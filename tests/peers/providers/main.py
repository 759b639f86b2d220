"""Sends all cases to a double by the vendors' own clients and then lets the runner do the same.

Prints a line of JSON with the address of the double and the cases; reads a line with what the runner made of each; and prints a
line with the differences."""

import json
import os
import signal
import sys
import tempfile

# What is set for other programs must not get into the clients.
for name in list(os.environ):
    if name.startswith(("OPENAI_", "AZURE_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "AWS_", "CLOUD_ML_")):
        del os.environ[name]
os.environ |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}

import cases
import double
import judge
import sdk_anthropic
import sdk_boto
import sdk_google
import sdk_openai

CLIENTS = {"openai": sdk_openai, "anthropic": sdk_anthropic, "gemini": sdk_google, "converse": sdk_boto}


def main(token):
    # A client that hangs must not hang the test.
    signal.alarm(300)
    answers = {wire: double.read_answers(wire) for wire in CLIENTS}
    requests_of = {wire: cases.cases(wire, answers[wire]) for wire in CLIENTS}
    wires = {}

    def answer_of(lane, case):
        name, _ = requests_of[wires[lane]][case]
        return answers[wires[lane]][name]

    address, requests = double.start(answer_of)
    lanes = cases.lanes(address, token)
    wires |= {name: lane["wire"] for name, lane in lanes.items()}
    sdk, listed = {}, []
    for name, lane in lanes.items():
        for case, (_, request) in requests_of[lane["wire"]].items():
            if lane["cases"] and case not in lane["cases"]:
                continue
            base = f"{address}/sdk/{name}/{case}{lane['base']}"
            sdk[name, case] = CLIENTS[lane["wire"]].ask(lane, base, request)
            listed.append({
                "lane": name, "case": case, "provider": lane["provider"], "model": lane["model"], "region": lane["region"],
                "baseUrl": f"{address}/ours/{name}/{case}{lane['base']}", "settings": lane["settings"],
                "variables": lane["variables"], "request": request,
            })
    of_sdk = len(requests.credentials)
    say({"cases": listed})
    ours = {(each["lane"], each["case"]): each["answer"] for each in json.loads(sys.stdin.readline())}
    say({"compared": len(sdk), "differences": judge.judge(lanes, requests, address, sdk, ours, of_sdk)})


def say(value):
    print(json.dumps(value), flush=True)


with tempfile.NamedTemporaryFile("w") as file:
    file.write("a.b.c")
    file.flush()
    main(file.name)
