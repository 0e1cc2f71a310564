"""A real file server with byte ranges, whose manners a test can spoil."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from appliance.sources.fetching import Fetching


class FileServer:
    """Serves `documents`; keeps what it was asked. `stall_after` bytes it falls silent."""

    def __init__(self) -> None:
        self.documents: dict[str, tuple[str, bytes]] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.etag = '"one"'
        self.knows_ranges = True
        self.stall_after = 0
        self.cut_after = 0
        self.stalled = threading.Event()
        self.go_on = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def put(self, path: str, content: bytes, kind: str = "application/octet-stream") -> str:
        """Serve `content`; its URL."""
        self.documents[path] = (kind, content)
        return self.url + path

    def ranges(self) -> list[str]:
        """The Range header of every request that had one."""
        return [headers["range"] for _, headers in self.asked if "range" in headers]

    def close(self) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        files = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                files.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """One GET."""
        path = request.path.partition("?")[0]
        self.asked.append((request.path, {k.lower(): v for k, v in request.headers.items()}))
        if path not in self.documents:
            request.send_error(404)
            return
        kind, content = self.documents[path]
        begin = self._begin(request, len(content))
        request.send_response(206 if begin else 200)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content) - begin))
        request.send_header("ETag", self.etag)
        if begin:
            span = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            request.send_header("Content-Range", span)
        request.end_headers()
        self._send(request, content[begin:])

    def _begin(self, request: BaseHTTPRequestHandler, size: int) -> int:
        wanted = request.headers.get("Range", "")
        changed = request.headers.get("If-Range", self.etag) != self.etag
        if not wanted or changed or not self.knows_ranges:
            return 0
        begin = int(wanted.removeprefix("bytes=").removesuffix("-"))
        return begin if begin < size else 0

    def _send(self, request: BaseHTTPRequestHandler, content: bytes) -> None:
        try:
            if 0 < self.cut_after < len(content):
                request.wfile.write(content[: self.cut_after])
                self.cut_after = 0
                request.close_connection = True
                return
            if 0 < self.stall_after < len(content):
                request.wfile.write(content[: self.stall_after])
                request.wfile.flush()
                self.stalled.set()
                self.go_on.wait()
                return
            request.wfile.write(content)
        except ConnectionError:
            pass


@pytest.fixture
def files() -> Iterator[FileServer]:
    """A running file server."""
    server = FileServer()
    yield server
    server.close()


@pytest.fixture
def fetching(tmp_path: Path) -> Fetching:
    """An order into an empty folder with an awkward name."""
    folder = tmp_path / "boş klasör ğüşİı"
    folder.mkdir()
    return Fetching(folder=folder)
