"""A server on this machine that interrupts downloads, fails, changes its files, and sends wrong headers."""

import contextlib
import hashlib
import resource
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Server(ThreadingHTTPServer):
    """A file server that can fail on purpose. Each entry of `failures`, `cuts` and `lengths` acts on one request.

    files: file name -> content. failures: status codes of the next requests. cuts: numbers of bytes after which the body of a
    response ends. lengths: values of the header Content-Length.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.failures, self.cuts, self.lengths = {}, [], [], []
        self.requests, self.ranges = [], True
        self.address = f"http://127.0.0.1:{self.server_port}/some/where"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        server, name = self.server, self.path.rsplit("/", 1)[1]
        server.requests.append((name, self.headers["Range"]))
        if name not in server.files:
            return self.send_error(404)
        if server.failures:
            return self.send_error(server.failures.pop(0))
        body = server.files[name]
        tag, begin = f'"{hashlib.md5(body).hexdigest()}"', 0
        if server.ranges and self.headers["Range"] and self.headers["If-Range"] == tag:
            begin = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if begin >= len(body):
                return self.send_error(416)
        self.send_response(206 if begin else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", server.lengths.pop(0) if server.lengths else str(len(body) - begin))
        self.end_headers()
        rest = body[begin:]
        self.wfile.write(rest[: server.cuts.pop(0)] if server.cuts else rest)


@pytest.fixture
def server():
    with Server() as found:
        thread = threading.Thread(target=found.serve_forever, args=(0.01,))
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def full_disk():
    """Return a function that takes a size in bytes and returns a context. In this context, no file can exceed the size."""

    @contextlib.contextmanager
    def no_file_over(size):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return no_file_over
