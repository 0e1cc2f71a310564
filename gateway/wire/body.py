"""How the bytes of a request body become a JSON object, and which bytes are not one.

Stricter than RFC 8259 where leniency is how two readers come to see two different requests: no
duplicate keys, no NaN or Infinity, no number beyond a double, no lone surrogates, no byte order
mark, and a limit on nesting. Time is linear in the length of the body.
"""

import json
import math
import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from appliance.errors import RequestError

MAX_DEPTH: Final = 64
# A key is repeated in an error only when it looks like a name: keys can carry text, too.
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")


def check_media(content_type: str | None, content_encoding: str | None) -> None:
    """Refuse with 415 what is announced as anything but plain JSON; no announcement is fine."""
    if (content_encoding or "").strip().lower() not in ("", "identity"):
        raise _media_error("compressed bodies are not read", "send no content-encoding header")
    media_type = (content_type or "").partition(";")[0].strip().lower()
    if media_type not in ("", "application/json") and not media_type.endswith("+json"):
        raise _media_error("the body must be JSON", "send `content-type: application/json`")


def read_object(body: bytes) -> dict[str, Any]:
    """The JSON object that `body` holds. Raises RequestError (400) `request.invalid_json`."""
    text = _read_text(body)
    value = _parse(text)
    if not isinstance(value, dict):
        raise _json_error("it must be an object")
    if "\\ud" in text or "\\uD" in text:
        _refuse_surrogates(value)
    return value


def is_name(key: str) -> bool:
    """Whether a key sent by a client is short and plain enough to be repeated in an error."""
    return _NAME.match(key) is not None


def is_deeper(value: object, depth: int) -> bool:
    """Whether lists and objects are nested in each other more than `depth` levels deep."""
    level = [value]
    for _ in range(depth):
        level = [
            child
            for node in level
            if isinstance(node, dict | list)
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return any(isinstance(node, dict | list) for node in level)


class _NotJsonError(ValueError):
    """The text has a meaning in some dialect of JSON, and none here."""


class _DoubledObject(dict[str, Any]):
    """An object in which a key stands more than once."""

    def __init__(self, built: dict[str, Any], keys: list[str]) -> None:
        super().__init__(built)
        self._keys = keys

    @property
    def doubled_key(self) -> str:
        """One that does."""
        return Counter(self._keys).most_common(1)[0][0]


def _read_text(body: bytes) -> str:
    if body.startswith(b"\xef\xbb\xbf"):
        raise _json_error("it starts with a byte order mark")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _json_error(f"byte {error.start} is not UTF-8") from None


def _parse(text: str) -> object:
    doubled: list[_DoubledObject] = []

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) == len(pairs):
            return built
        doubled.append(_DoubledObject(built, keys=[key for key, _ in pairs]))
        return doubled[-1]

    decoder = json.JSONDecoder(
        object_pairs_hook=build_object, parse_float=_read_number, parse_constant=_refuse_constant
    )
    try:
        value = decoder.decode(text)
    except RecursionError:
        raise _depth_error() from None
    except json.JSONDecodeError as error:
        raise _json_error(f"{error.msg} (line {error.lineno} column {error.colno})") from None
    except _NotJsonError as error:
        raise _json_error(str(error)) from None
    except ValueError:  # an integer of more digits than Python converts
        raise _json_error("a number is out of range") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise _depth_error()
    if doubled:
        _refuse_doubled(value)
    return value


def _read_number(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise _NotJsonError("a number is out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJsonError(f"{name} is not JSON")


def _refuse_doubled(value: object) -> None:
    # Found for certain: a marked object is lost only inside of another marked one.
    for path, node in _walk(value):
        if isinstance(node, _DoubledObject):
            raise _json_error("a key stands twice in it", _join(path, node.doubled_key))


def _refuse_surrogates(value: object) -> None:
    for path, node in _walk(value):
        texts = node if isinstance(node, dict) else (node,) if isinstance(node, str) else ()
        if any(_has_surrogate(text) for text in texts):
            raise _json_error("a string holds half of a surrogate pair", path or None)


def _has_surrogate(text: str) -> bool:
    if text.isascii():
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _walk(value: object) -> Iterator[tuple[str, object]]:
    """Every value with its path, such as `messages[0].content`; the outermost has the path ``."""
    waiting: deque[tuple[str, object]] = deque([("", value)])
    while waiting:
        path, node = waiting.popleft()
        yield path, node
        if isinstance(node, dict):
            waiting.extend((_join(path, key), child) for key, child in node.items())
        elif isinstance(node, list):
            waiting.extend((f"{path}[{at}]", child) for at, child in enumerate(node))


def _join(path: str, key: str) -> str:
    name = key if is_name(key) else "[...]"
    return f"{path}.{name}" if path else name


def _json_error(reason: str, param: str | None = None) -> RequestError:
    return RequestError(
        "request.invalid_json",
        f"the request body cannot be read: {reason}",
        status=400,
        param=param,
    )


def _depth_error() -> RequestError:
    return _json_error(f"it is nested more than {MAX_DEPTH} levels deep")


def _media_error(reason: str, hint: str) -> RequestError:
    return RequestError("request.unsupported_media_type", reason, status=415, hint=hint)
