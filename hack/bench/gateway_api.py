"""API server with one Agent (bench/a), one Pod and one caller, for benchmarks of the gateway.

    gateway_api.py PORT PORT-OF-THE-POD [LIMITS]    LIMITS: the Agent's spec.limits, as JSON
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

META = {"name": "a", "namespace": "bench", "uid": "u", "resourceVersion": "1", "generation": 1}
SPEC = {"name": "A", "framework": "corail", "limits": json.loads(sys.argv[3]) if len(sys.argv) > 3 else []}
STATUS = {"phase": "Running", "observedGeneration": 1, "children": [{"kind": "Service", "name": "a", "uid": "s"}]}
AGENT = {"metadata": META, "spec": SPEC, "status": STATUS}
LABELS = {"recif.dev/agent": "a", "kubernetes.io/service-name": "a",
          "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
OWNER = {"apiVersion": "v1", "kind": "Service", "name": "a", "uid": "s", "controller": True}
SLICE = {"metadata": {**META, "labels": LABELS, "ownerReferences": [OWNER]}, "ports": [{"name": "http", "port": int(sys.argv[2])}],
         "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": "p"}}]}


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if "watch=true" in self.path:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            time.sleep(25)
            self.close_connection = True
            return
        kind = self.path.split("?")[0].rsplit("/", 1)[1]
        items = {"agents": [AGENT], "endpointslices": [SLICE]}.get(kind, [])
        body = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if review["kind"] == "TokenReview":
            ours = review["spec"]["token"] == "bench"
            review["status"] = {"authenticated": ours, "user": {"username": "bench"} if ours else {}}
        else:
            review["status"] = {"allowed": review["spec"]["user"] == "bench"}
        body = json.dumps(review).encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Api)
server.daemon_threads = True
server.serve_forever()
