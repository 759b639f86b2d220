"""One server that stands for all providers: the first parts of a path say who asks, at which lane, and for which case; the answer is
that of the case, and the request is kept."""

import binascii
import json
import struct
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs


KEYS = {"AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "s/+=", "Expiration": "2999-01-01T00:00:00Z"}
SESSION = "session/+=="

# Credentials by the path at which they are asked for: of Google's server of tokens, AWS STS, and the agent of a container service.
ISSUED = {
    "/token": json.dumps({"access_token": "ya29.TOKEN", "expires_in": 3599, "token_type": "Bearer"}),
    "/sts/": '<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>'
    + "<Credentials>" + "".join(f"<{name}>{value}</{name}>" for name, value in (KEYS | {"SessionToken": SESSION}).items())
    + "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
    "/container": json.dumps(KEYS | {"Token": SESSION}),
}


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes
    # The connection breaks after the body.
    is_cut: bool


@dataclass
class Request:
    method: str
    # Path and query, as sent, without the first parts.
    target: str
    # The whole path and query.
    full: str
    headers: dict
    body: bytes


@dataclass
class Requests:
    """The requests that came, by side (`sdk` or `ours`), lane and case; and those for credentials, each with its kind and what it
    says."""

    kept: dict = field(default_factory=dict)
    credentials: list = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, key, request):
        with self.lock:
            self.kept.setdefault(key, []).append(request)


def read_answers(wire):
    """Returns the answers of a wire by their names."""
    text = (Path(__file__).parent / "answers" / f"{wire}.http").read_text(encoding="utf-8")
    head, *sections = text.split("\n### ")
    for name in ("source: ", "license: "):
        assert f"\n{name}" in f"\n{head}", f"answers/{wire}.http does not say its {name}"
    answers = {}
    for section in sections:
        name, rest = section.split("\n", 1)
        top, body = rest.split("\n\n", 1)
        status, *headers = top.splitlines()
        headers = dict(line.split(": ", 1) for line in headers)
        is_cut = headers.pop("cut", None) is not None
        is_frames = headers["content-type"] == "application/vnd.amazon.eventstream"
        encoded = b"".join(map(frame, body.splitlines())) if is_frames else f"{body.rstrip()}\n\n".encode()
        answers[name] = Answer(int(status.removeprefix("HTTP ")), headers, encoded, is_cut)
    return answers


def frame(line):
    """Encodes a line as a frame of https://smithy.io/2.0/aws/amazon-eventstream.html."""
    if not line:
        return b""
    name, _, payload = line.partition(" ")
    if name == "garbled":
        whole = bytearray(frame('messageStart {"role":"assistant"}'))
        whole[-1] ^= 1
        return bytes(whole)
    kind = "exception" if name.startswith("!") else "event"
    headers = {f":{kind}-type": name.removeprefix("!"), ":content-type": "application/json", ":message-type": kind}
    encoded = b""
    for header, value in headers.items():
        encoded += struct.pack(f">B{len(header)}sBH", len(header), header.encode(), 7, len(value)) + value.encode()
    payload = payload.encode()
    prelude = struct.pack(">II", 16 + len(encoded) + len(payload), len(encoded))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + encoded + payload
    return message + struct.pack(">I", binascii.crc32(message))


def start(answers_of):
    """Starts the server, whose answers `answers_of` finds by lane and case. Returns its address and the requests it will keep."""
    requests = Requests()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path in ("/token", "/sts/"):
                return self.credentials(parse_qs(body.decode()))
            _, side, lane, case, rest = self.path.split("/", 4)
            headers = {name.lower(): value for name, value in self.headers.items()}
            requests.add((side, lane, case), Request(self.command, f"/{rest}", self.path, headers, body))
            self.answer(answers_of(lane, case))

        def do_GET(self):
            self.credentials({"Authorization": [self.headers.get("authorization")]})

        def credentials(self, form):
            requests.credentials.append((self.path, {name: value for name, [value] in form.items()}))
            type = "text/xml" if self.path == "/sts/" else "application/json"
            self.answer(Answer(200, {"content-type": type}, ISSUED[self.path].encode(), False))

        def answer(self, answer):
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            # A longer length than that of the body makes the end of the connection an error.
            self.send_header("content-length", str(len(answer.body) + answer.is_cut))
            if answer.is_cut:
                self.send_header("connection", "close")
                self.close_connection = True
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}", requests
