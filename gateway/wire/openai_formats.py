"""What an answer must look like, as OpenAI's chat completions and responses spell it.

Chat completions put a schema and its name inside of `json_schema`; responses beside the type.
"""

from typing import Annotated, TypeAlias

from msgspec import Meta, Struct

from appliance.generation import OutputFormat
from gateway.wire.json_schema import SchemaObject, to_schema_text

FormatName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}\Z")]


class TextFormat(
    Struct, frozen=True, kw_only=True, tag_field="type", tag="text", forbid_unknown_fields=True
):
    """Free text."""

    def to_output_format(self, param: str) -> OutputFormat | None:  # noqa: ARG002
        """The same in our words; `param` is where it stands, for errors."""
        return None


class JsonObjectFormat(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="json_object",
    forbid_unknown_fields=True,
):
    """Any JSON object."""

    def to_output_format(self, param: str) -> OutputFormat | None:  # noqa: ARG002
        """The same in our words."""
        return OutputFormat(kind="json_object")


class NamedSchema(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schema; every answer is held to it, so `strict` changes nothing."""

    name: FormatName
    schema: SchemaObject
    description: str | None = None
    strict: bool | None = None


class ChatSchemaFormat(
    Struct,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="json_schema",
    forbid_unknown_fields=True,
):
    """JSON after a schema, as chat completions ask for it."""

    json_schema: NamedSchema

    def to_output_format(self, param: str) -> OutputFormat | None:
        """The same in our words. Raises RequestError (400)."""
        text = to_schema_text(self.json_schema.schema, f"{param}.json_schema.schema")
        return OutputFormat(kind="json_schema", text=text)


class ResponseSchemaFormat(
    NamedSchema,
    frozen=True,
    kw_only=True,
    tag_field="type",
    tag="json_schema",
    forbid_unknown_fields=True,
):
    """JSON after a schema, as responses ask for it."""

    def to_output_format(self, param: str) -> OutputFormat | None:
        """The same in our words. Raises RequestError (400)."""
        text = to_schema_text(self.schema, f"{param}.schema")
        return OutputFormat(kind="json_schema", text=text)


ChatFormat: TypeAlias = TextFormat | JsonObjectFormat | ChatSchemaFormat
ResponseFormat: TypeAlias = TextFormat | JsonObjectFormat | ResponseSchemaFormat
