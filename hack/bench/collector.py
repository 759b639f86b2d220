"""Collector of traces for benchmarks, which reads what it gets and then behaves in one manner.

    collector.py PORT MANNER

Manners: `takes` answers 200; `slow` the same after a second; `busy` 429; `refuses` 400; `verbose` 200 with 10 MiB; `silent` never.
"""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MANNER = sys.argv[2]
STATUS = {"takes": 200, "slow": 200, "busy": 429, "refuses": 400, "verbose": 200, "silent": 200}[MANNER]
BODY = bytes(10 << 20 if MANNER == "verbose" else 0)


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if MANNER == "slow":
            time.sleep(1)
        while MANNER == "silent":
            time.sleep(3600)
        try:
            self.send_response(STATUS)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY)
        except OSError:
            # The exporter does not read a long answer to its end.
            self.close_connection = True

    def log_message(self, *args):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Collector)
server.daemon_threads = True
server.serve_forever()
