"""An OIDC-like issuer as a process of its own: discovery, a JWKS that rotates, and every way of answering badly.

with running() as issuer:
    issuer.serve(jwks(...))          what /certs answers from now on
    issuer.behave("slow")            see BEHAVIOURS
    issuer.fetches                   how often /certs was asked
"""

import http.client
import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

BEHAVIOURS = ("well", "slow", "huge", "html", "error", "redirect-away", "redirect-here", "hangs-up")


class Quiet(ThreadingHTTPServer):
    daemon_threads = True
    state: ClassVar[dict[str, Any]] = {"document": b'{"keys": []}', "behaviour": "well", "fetches": 0}

    def handle_error(self, *_):
        """Clients that hang up are what some tests are about."""


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Quiet

    def do_GET(self):
        state = self.server.state
        path = urlsplit(self.path).path
        if path == "/.well-known/openid-configuration":
            base = f"http://127.0.0.1:{self.server.server_port}"
            named = {"issuer": state.get("issuer") or base, "jwks_uri": state.get("jwks_uri") or f"{base}/certs"}
            self._send(200, json.dumps(named).encode())
        elif path == "/certs":
            state["fetches"] += 1
            self._certs(state)
        elif path == "/moved":
            self._send(200, state["document"])
        elif path == "/state":
            self._send(200, json.dumps({"fetches": state["fetches"]}).encode())
        else:
            self._send(404, b"{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "document" in body:
            body["document"] = body["document"].encode()
        self.server.state.update(body)
        self._send(200, b"{}")

    def _certs(self, state):
        behaviour = state["behaviour"]
        if behaviour == "slow":
            self.send_response(200)
            self.send_header("Content-Length", str(len(state["document"])))
            self.end_headers()
            for byte in state["document"]:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                time.sleep(0.2)
        elif behaviour == "huge":
            self._send(200, state["document"] + b" " * 10_000_000)
        elif behaviour == "html":
            self._send(200, b"<html><body>Sign in</body></html>")
        elif behaviour == "error":
            self._send(500, b"{}")
        elif behaviour == "redirect-away":
            self._send(302, b"", Location="http://localhost:1/certs")
        elif behaviour == "redirect-here":
            self._send(302, b"", Location="/moved")
        elif behaviour == "hangs-up":
            self.close_connection = True
            self.connection.close()
        else:
            self._send(200, state["document"])

    def _send(self, status, body, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    server = Quiet(("127.0.0.1", 0), Answers)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve_forever()


class Issuer:
    """The process, from the side of a test."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.access.issuer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self.port = int(self._stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        self.certs = f"{self.url}/certs"

    def serve(self, document: bytes):
        self._ask("POST", "/", {"document": document.decode()})

    def behave(self, behaviour: str):
        assert behaviour in BEHAVIOURS
        self._ask("POST", "/", {"behaviour": behaviour})

    def claim(self, **about):
        """What the discovery document says: `issuer`, `jwks_uri`."""
        self._ask("POST", "/", about)

    @property
    def fetches(self) -> int:
        return self._ask("GET", "/state")["fetches"]

    def stop(self):
        self._stdin.close()
        self._process.wait(30)
        self._stdout.close()

    def _ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


@contextmanager
def running():
    issuer = Issuer()
    try:
        yield issuer
    finally:
        issuer.stop()


if __name__ == "__main__":
    main()
