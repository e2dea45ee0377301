"""A server of the tests that answers each request with JSON, in a thread of this process."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class JSONServer(ThreadingHTTPServer):
    """Its subclasses have ``reply(path, body)``, which returns the HTTP status and the data of the answer."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        size = int(self.headers.get("Content-Length") or 0)
        status, answer = self.server.reply(self.path, json.loads(self.rfile.read(size) or "{}"))
        data = json.dumps(answer, default=list).encode()  # generators become lists
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST

    def log_message(self, *_):
        pass
