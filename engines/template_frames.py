"""What the template process and its parent agree on: how long it may take, and how they speak.

A frame is a 4-byte big-endian length and that much JSON.
"""

import json
import struct
from typing import IO, Any, Final

TIME_LIMIT_S: Final = 2.0

_LENGTH: Final = struct.Struct(">I")


def read_frame(source: IO[bytes]) -> dict[str, Any] | None:
    """The next frame's content; None when the other side has closed."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    body = source.read(_LENGTH.unpack(head)[0])
    content: dict[str, Any] = json.loads(body)
    return content


def write_frame(sink: IO[bytes], content: dict[str, Any]) -> None:
    """Send one frame. Raises OSError when the other side has closed."""
    body = json.dumps(content).encode()
    sink.write(_LENGTH.pack(len(body)) + body)
    sink.flush()
