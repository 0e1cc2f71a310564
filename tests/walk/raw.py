"""HTTP by hand, for what no client library would send."""

import json
import socket
import struct
from typing import Any

from msgspec import Struct


class Answer(Struct, frozen=True):
    """One parsed response and whether the server then closed the connection."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_closed: bool

    @property
    def error(self) -> dict[str, Any]:
        """The error of the envelope; fails where there is none."""
        assert self.headers["content-type"].startswith("application/json")
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


def connect(port: int, timeout_s: float = 30.0) -> socket.socket:
    """A connection to the gateway."""
    return socket.create_connection(("127.0.0.1", port), timeout=timeout_s)


def head(
    method: str,
    path: str,
    *fields: str,
    key: str = "",
    version: str = "1.1",
    host: str = "localhost",
) -> bytes:
    """The head of a request."""
    lines = [f"{method} {path} HTTP/{version}", f"Host: {host}"]
    lines += [f"Authorization: Bearer {key}"] if key else []
    return "\r\n".join([*lines, *fields, "", ""]).encode()


def post(body: bytes, key: str, *fields: str, version: str = "1.1") -> bytes:
    """A whole chat request."""
    return (
        head(
            "POST",
            "/v1/chat/completions",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            *fields,
            key=key,
            version=version,
        )
        + body
    )


def read_to_end(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    pieces = []
    while piece := _receive(connection):
        pieces.append(piece)
    return b"".join(pieces)


def read_answer(connection: socket.socket) -> Answer:
    """One response with a content-length."""
    received = b""
    while b"\r\n\r\n" not in received:
        piece = _receive(connection)
        assert piece, f"the server hung up after {received!r}"
        received += piece
    start, _, body = received.partition(b"\r\n\r\n")
    status, headers = _parse_head(start)
    length = int(headers.get("content-length", 0))
    is_closed = False
    while len(body) < length and not is_closed:
        piece = _receive(connection)
        is_closed = not piece
        body += piece
    if headers.get("connection") == "close":
        assert _receive(connection) == b""
        is_closed = True
    return Answer(status, headers, body, is_closed)


def read_answers(connection: socket.socket) -> list[Answer]:
    """Every response until the server closes, each with a content-length."""
    answers = []
    rest = read_to_end(connection)
    while rest:
        start, _, rest = rest.partition(b"\r\n\r\n")
        status, headers = _parse_head(start)
        length = int(headers["content-length"])
        answers.append(Answer(status, headers, rest[:length], is_closed=length >= len(rest)))
        rest = rest[length:]
    return answers


def _parse_head(start: bytes) -> tuple[int, dict[str, str]]:
    lines = start.decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines[1:])
    return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in fields}


def reset(connection: socket.socket) -> None:
    """Close with a RST instead of a FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except ConnectionResetError:
        return b""
