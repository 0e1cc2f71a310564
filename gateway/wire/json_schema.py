"""Which JSON Schemas a client may send: objects, not too deep and not too large.

What a schema means, and whether an answer can be held to it, is for the engine to say.
"""

import json
from typing import Any, Final

from gateway.wire.body import is_deeper
from gateway.wire.schema import invalid_parameter

MAX_SCHEMA_BYTES: Final = 65_536
MAX_SCHEMA_DEPTH: Final = 32

SchemaObject = dict[str, Any]


def to_schema_text(schema: SchemaObject, param: str) -> str:
    """The schema as JSON text, its keys in the order they came. Raises RequestError (400)."""
    if is_deeper(schema, MAX_SCHEMA_DEPTH):
        raise invalid_parameter(
            param, f"expected a schema of at most {MAX_SCHEMA_DEPTH} nested levels"
        )
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    if len(text.encode()) > MAX_SCHEMA_BYTES:
        raise invalid_parameter(param, f"expected a schema of at most {MAX_SCHEMA_BYTES} bytes")
    return text


def to_arguments_text(schema: SchemaObject, param: str) -> str:
    """The schema of a function's arguments, which are always an object."""
    if schema.get("type", "object") != "object":
        raise invalid_parameter(param, "expected a schema whose `type` is `object`")
    return to_schema_text({"type": "object"} | schema, param)
