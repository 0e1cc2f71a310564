"""Anthropic's messages: which requests are understood, and what is sent back.

A parameter is honoured, or stands in `UNSUPPORTED`, or is unknown: no fourth way.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from appliance.generation import (
    ChatPrompt,
    GenerationEvent,
    OutputFormat,
    SamplingParams,
    StopConditions,
)
from gateway.wire import anthropic_tools, anthropic_turns, schema
from gateway.wire.anthropic_answer import to_message
from gateway.wire.anthropic_stream import MessageFrames
from gateway.wire.anthropic_tools import Choice, Tools, to_tool_choice, to_tools
from gateway.wire.anthropic_turns import CacheControl, Text, Turn, tidy_turns, to_messages
from gateway.wire.body import read_object
from gateway.wire.call import Call, Decoded
from gateway.wire.json_schema import SchemaObject, to_schema_text
from gateway.wire.openai_params import MAX_TOKEN_ID, ModelName, StopText, check_model
from gateway.wire.parts import gather
from gateway.wire.schema import MAX_TURNS, Unsupported
from gateway.wire.sse import encode_events

UNSUPPORTED: Final = {
    "container": Unsupported("the box runs no code"),
    "diagnostics": Unsupported("the cache gives no account of itself"),
    "inference_geo": Unsupported("where a request is served is the operator's decision"),
    "service_tier": Unsupported("there is one tier", ("auto", "standard_only")),
    "speed": Unsupported("there is one speed", ("standard",)),
    "thinking": Unsupported(
        "whether a model thinks first is set per model",
        ({"type": "disabled"}, {"type": "adaptive"}),
    ),
    "user_profile_id": Unsupported("who is calling is decided by the key"),
    "workspace_id": Unsupported("who is calling is decided by the key"),
}
_UNSUPPORTED_CONFIG: Final = {"effort": Unsupported("models have no such setting")}

_EXPECTED: Final = {
    "output_config.format.type": "expected `json_schema`",
    **anthropic_tools.EXPECTED,
    **anthropic_turns.EXPECTED,
}


class SchemaFormat(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JSON after a schema."""

    type: Literal["json_schema"]
    schema: SchemaObject


class OutputConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the answer must look like."""

    format: SchemaFormat | None = None


class Metadata(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A label for somebody else's dashboard: who is calling is decided by the key."""

    user_id: str | None = None


class MessagesRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/messages. None is what a client means by null: the default.

    `temperature`, `top_p` and `top_k` are taken, although newer clients no longer offer them.
    `max_tokens` 0 fills the prefix cache.
    """

    model: ModelName
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)]
    messages: Annotated[list[Turn], Meta(min_length=1, max_length=MAX_TURNS)]
    system: Text | None = None
    stop_sequences: Annotated[list[StopText], Meta(max_length=16)] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)] | None = None
    tools: Tools | None = None
    tool_choice: Choice | None = None
    output_config: OutputConfig | None = None
    metadata: Metadata | None = None
    cache_control: CacheControl | None = None


def decode(body: bytes) -> Decoded:
    """The request that a body holds. Raises RequestError (400)."""
    fields = read_object(body)
    schema.take_unsupported(fields, UNSUPPORTED)
    if isinstance(fields.get("output_config"), dict):
        schema.take_unsupported(fields["output_config"], _UNSUPPORTED_CONFIG, "output_config.")
    tidy_turns(fields.get("messages"))
    return _to_decoded(schema.check(fields, MessagesRequest, _EXPECTED))


def encode_stream(events: AsyncIterator[GenerationEvent], call: Call) -> AsyncIterator[bytes]:
    """The answer as named events, ending in `message_stop` or `error`."""
    return encode_events(events, MessageFrames(call))


async def encode_whole(events: AsyncIterator[GenerationEvent], call: Call) -> bytes:
    """The answer as one object. Raises the RequestError or EngineError that a Failed stands for."""
    return msgspec.json.encode(to_message(await gather(events), call))


def _to_decoded(request: MessagesRequest) -> Decoded:
    check_model(request.model)
    tools = to_tools(request.tools)
    wants_one = request.tool_choice and request.tool_choice.disable_parallel_tool_use
    prompt = ChatPrompt(
        messages=to_messages(request.system, request.messages),
        tools=tools,
        tool_choice=to_tool_choice(request.tool_choice, tools),
        parallel_tool_calls=not wants_one,
    )
    return Decoded(
        model=request.model,
        prompts=(prompt,),
        sampling=SamplingParams(
            temperature=1.0 if request.temperature is None else request.temperature,
            top_p=1.0 if request.top_p is None else request.top_p,
            top_k=request.top_k or 0,
        ),
        stopping=StopConditions(
            max_tokens=request.max_tokens, stop=tuple(request.stop_sequences or ())
        ),
        n=1,
        stream=bool(request.stream),
        include_usage=True,
        output_format=_to_output_format(request.output_config),
    )


def _to_output_format(config: OutputConfig | None) -> OutputFormat | None:
    if config is None or config.format is None:
        return None
    text = to_schema_text(config.format.schema, "output_config.format.schema")
    return OutputFormat(kind="json_schema", text=text)
