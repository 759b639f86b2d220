"""An MCP server over standard input and output that does what a test asks for, well-behaved or not. Both eras."""

import json
import os
import subprocess
import sys
import threading
import time

out = sys.stdout.buffer
write_lock = threading.Lock()
cancelled = []
answers = {}
asked = threading.Condition()


def raw(data):
    with write_lock:
        out.write(data)
        out.flush()


def send(message):
    raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def tell(method, params=None):
    send({"method": method, **({"params": params} if params is not None else {})})


def ask_client(method, params):
    name = f"s{time.monotonic_ns()}"
    send({"id": name, "method": method, "params": params})
    with asked:
        asked.wait_for(lambda: name in answers, timeout=20)
        return answers.get(name)


def work(request, params):
    """The result of one request; none if there is to be no answer."""
    method, meta = request["method"], params.get("_meta", {})
    if method == "initialize":
        if params.get("refuse"):
            raise ValueError("refused")
        tell("notifications/message", {"level": "info", "data": "hello"}) if params.get("greet") else None
        version = params.get("protocolVersion", "2025-11-25")
        return {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "child", "version": "1"}}
    if method == "server/discover":
        return {"supportedVersions": ["2026-07-28"], "capabilities": {}, "serverInfo": {"name": "child", "version": "1"}}
    if method == "echo":
        return params
    if method == "pid":
        return {"pid": os.getpid()}
    if method == "sleep":
        time.sleep(params["seconds"])
        return {}
    if method == "die":
        os._exit(params.get("status", 3))
    if method == "tell":
        for number in range(params["count"]):
            tell("notifications/message", {"level": "info", "data": number})
        return {}
    if method == "progress":
        for number in range(params["count"]):
            tell("notifications/progress", {"progressToken": meta["progressToken"], "progress": number, "message": "x" * params.get("size", 1)})
        return {}
    if method == "ask":
        return ask_client("sampling/createMessage", {"question": params["question"]})
    if method == "pretty":
        raw(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": {"pretty": [1, {"a": "b\nc"}]}}, indent=2).encode() + b"\n")
        return None
    if method == "noise":
        raw(b"starting up\n[INFO] ready\n{ not json\n\xff\xfe\n\n[\n")
        return {}
    if method == "huge":
        raw(b'{"jsonrpc":"2.0","result":{"text":"')
        for _ in range(params["mib"]):
            raw(b"x" * (1 << 20))
        raw(b'"},"id":' + json.dumps(request["id"]).encode() + b"}\n")
        return None
    if method == "huge_ask":
        # A request of its own, of the same id as that of its client.
        raw(b'{"jsonrpc":"2.0","id":' + json.dumps(request["id"]).encode() + b',"method":"sampling/createMessage","params":{"text":"')
        for _ in range(params["mib"]):
            raw(b"x" * (1 << 20))
        raw(b'"}}\n')
        with asked:
            return {"told": asked.wait_for(lambda: request["id"] in answers, timeout=20)}
    if method == "cancelled":
        return {"ids": cancelled}
    if method == "orphan":
        # A process that ends after its parent has: the process that inherits it has to take note of its end.
        shell = subprocess.run(["sh", "-c", "sleep 0.2 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE)
        return {"pid": int(shell.stdout)}
    if method == "helper":
        helper = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
        return {"pid": helper.pid}
    if method == "log":
        print(params["text"], file=sys.stderr, flush=True)
        return {}
    if method == "subscriptions/listen":
        key = "io.modelcontextprotocol/subscriptionId"
        tell("notifications/subscriptions/acknowledged", {"_meta": {key: request["id"]}, "notifications": {}})
        if params.get("ends"):
            return {"_meta": {key: request["id"]}}
        return None
    send({"id": request["id"], "error": {"code": -32601, "message": f"Method not found: {method}"}})
    return None


def serve(request):
    try:
        result = work(request, request.get("params") or {})
    except ValueError as error:
        send({"id": request["id"], "error": {"code": -32602, "message": str(error)}})
        return
    if result is not None:
        send({"id": request["id"], "result": result})


for line in sys.stdin.buffer:
    message = json.loads(line)
    if message.get("method") == "deaf":
        # It lives on and hears nothing more.
        os.close(0)
        send({"id": message["id"], "result": {}})
        time.sleep(600)
    if "method" not in message:
        with asked:
            answers[message["id"]] = message.get("result")
            asked.notify_all()
    elif "id" in message:
        threading.Thread(target=serve, args=(message,), daemon=True).start()
    elif message["method"] == "notifications/cancelled":
        cancelled.append(message["params"]["requestId"])
    elif message["method"] == "notifications/tell":
        tell("notifications/message", message.get("params"))
