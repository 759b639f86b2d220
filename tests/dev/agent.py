"""An agent of a test: it answers each request with TEXT, and a client that takes events with ten of them, for a second."""

import http.server
import os
import time


class Agent(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer(b"ok")

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "text/event-stream" not in self.headers.get("Accept", ""):
            return self.answer(os.environ.get("TEXT", "").encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(10):
            self.chunk(b"data: %d\n\n" % number)
            time.sleep(0.1)
        self.chunk(b"data: end\n\n")
        self.chunk(b"")

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128


Server(("127.0.0.1", int(os.environ["PORT"])), Agent).serve_forever()
