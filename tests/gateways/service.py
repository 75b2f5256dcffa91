"""The service that the gateways protect. It replies with what it has received."""

import hashlib
import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


# The service accepts more than any gateway or Keyward.
http.client._MAXHEADERS = 10_000
http.client._MAXLINE = 1 << 20


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes.
    disable_nagle_algorithm = True

    def reply(self):
        body = self.body()
        seen = {"method": self.command, "target": self.path, "headers": self.headers.items(), "length": len(body),
                "sha256": hashlib.sha256(body).hexdigest()}
        text = json.dumps(seen).encode()
        # A status that the client asks for: an error of the service must reach the client as it is.
        self.send_response(int(self.headers.get("X-Reply-Status", 200)))
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = reply

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_):
        """A gateway may close a connection at any time."""


def start_service():
    """Returns the address of a new service."""
    server = Server(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"127.0.0.1:{server.server_address[1]}"
