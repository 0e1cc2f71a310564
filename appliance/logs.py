"""What a log line is: one JSON object with time, level, process, logger, message, request_id.

Lines hold numbers and identifiers only. An exception is told by its type and where it was raised,
never by its message, and other libraries' messages are cut to one short line: either may quote
what a user wrote.
"""

import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, TextIO

import msgspec

from appliance.config import LogLevel

# Set by the gateway for the time of a request; every line written meanwhile carries it.
request_id: Final[ContextVar[str]] = ContextVar("request_id", default="")

_OWN_PACKAGES: Final = frozenset({"appliance", "gateway", "engines", "guardrails", "tui"})
# Extra fields that may hold text; all others must be numbers.
_TEXT_EXTRAS: Final = frozenset({"code", "model", "tenant_id", "principal_id", "route", "outcome"})
_MAX_FOREIGN_CHARS: Final = 200
_MAX_FRAMES: Final = 20
_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def configure(level: LogLevel, process: str, target: TextIO | Path | None = None) -> None:
    """Send every log line of this process to `target` (a file to append to; default stderr)."""
    handler = _handler(sys.stderr if target is None else target)
    handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.setLevel(level.upper())
    # Below WARNING other libraries tell of each request and query.
    handler.addFilter(_is_ours_or_serious)
    # A full disk must not turn every log line into a traceback on stderr.
    logging.raiseExceptions = False
    logging.captureWarnings(capture=True)


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self.process = process
        self._encoder = msgspec.json.Encoder()

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its newline."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self.process,
            "logger": record.name,
            "message": _encodable(_message(record)),
        }
        if current := request_id.get():
            line["request_id"] = _encodable(current)
        line |= _extras(record)
        if record.exc_info and record.exc_info[1] is not None:
            line["exception"] = describe_exception(record.exc_info[1])
        return self._encoder.encode(line).decode()


def describe_exception(error: BaseException) -> dict[str, Any]:
    """An exception's type, code and place, and those of its cause: never its message."""
    frames = extract_tb(error.__traceback__, limit=-_MAX_FRAMES)
    told: dict[str, Any] = {
        "type": f"{type(error).__module__}.{type(error).__qualname__}",
        "where": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if code := getattr(error, "code", ""):
        told["code"] = str(code)
    if isinstance(error, BaseExceptionGroup):
        told["exceptions"] = [describe_exception(inner) for inner in error.exceptions]
    if error.__cause__ is not None:
        told["cause"] = describe_exception(error.__cause__)
    return told


def _handler(target: TextIO | Path) -> logging.Handler:
    if not isinstance(target, Path):
        return logging.StreamHandler(target)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return WatchedFileHandler(target, encoding="utf-8")


def _is_ours(record: logging.LogRecord) -> bool:
    return record.name.partition(".")[0] in _OWN_PACKAGES


def _is_ours_or_serious(record: logging.LogRecord) -> bool:
    return _is_ours(record) or record.levelno >= logging.WARNING


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if _is_ours(record):
        return message
    return message.partition("\n")[0][:_MAX_FOREIGN_CHARS]


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {
        name: _encodable(value) if isinstance(value, str) else value
        for name, value in vars(record).items()
        if name not in _STANDARD_FIELDS
        and (isinstance(value, int | float) or (isinstance(value, str) and name in _TEXT_EXTRAS))
    }


def _encodable(text: str) -> str:
    """The text without lone surrogates, which JSON cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()
