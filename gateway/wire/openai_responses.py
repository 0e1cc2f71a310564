"""OpenAI's responses, without a memory: which requests are understood, and what is sent back.

Nothing is stored, so `store` is false also where it is left out, and a request brings its whole
conversation along. A parameter is honoured, or stands in `UNSUPPORTED`, or is unknown.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from appliance.generation import (
    ChatPrompt,
    GenerationEvent,
    Message,
    SamplingParams,
    StopConditions,
)
from gateway.wire import openai_response_items, schema
from gateway.wire.body import read_object
from gateway.wire.call import Call, Decoded
from gateway.wire.openai_formats import ResponseFormat, TextFormat
from gateway.wire.openai_params import Labels, ModelName, TokenCount, check_model
from gateway.wire.openai_response_items import Item, tidy_items, to_messages
from gateway.wire.openai_responses_answer import to_response
from gateway.wire.openai_responses_stream import ResponseFrames
from gateway.wire.openai_tools import ResponseToolChoice, ResponseTools, to_tool_choice, to_tools
from gateway.wire.parts import gather
from gateway.wire.schema import MAX_TURNS, Unsupported, invalid_parameter
from gateway.wire.sse import encode_events

_STATELESS: Final = "nothing is stored here; send the whole conversation as `input`"

UNSUPPORTED: Final = {
    "access_programs": Unsupported("the box has no such programs"),
    "background": Unsupported("answers are sent while the client waits", (False,)),
    "background_options": Unsupported("answers are sent while the client waits", ({},)),
    "context_management": Unsupported("a conversation is never cut in silence", ([],)),
    "conversation": Unsupported(_STATELESS),
    "image": Unsupported("the models of this box read and write text", ({},)),
    "max_tool_calls": Unsupported("it bounds built-in tools, and there are none"),
    "moderation": Unsupported("guardrails are set by the operator of the box"),
    "previous_response_id": Unsupported(_STATELESS),
    "prompt": Unsupported("prompt templates are not stored here"),
    "prompt_cache_options": Unsupported("the prefix cache has no options", ({},)),
    "prompt_cache_retention": Unsupported("prefixes are cached in memory", ("in_memory",)),
    "reasoning": Unsupported(
        "whether a model thinks first is set per model", ({}, {"effort": "none"})
    ),
    "service_tier": Unsupported("there is one tier", ("auto", "default")),
    "store": Unsupported("answers are not stored", (False,)),
    "stream_options": Unsupported(
        "chunks are never padded here", ({}, {"include_obfuscation": False})
    ),
    "truncation": Unsupported("a conversation is never cut in silence", ("disabled",)),
}
_UNSUPPORTED_TEXT: Final = {"verbosity": Unsupported("ask for it in the prompt", ("medium",))}
# Reasoning is sent in the clear, so there is nothing to encrypt.
_INCLUDABLE: Final = ("message.output_text.logprobs", "reasoning.encrypted_content")

_EXPECTED: Final = {
    "text.format.type": "expected text, json_object or json_schema",
    "tool_choice": "expected none, auto, required or one function",
    "tool_choice.type": "expected `function`",
    "tools[].type": "expected `function`: there are no built-in tools",
    **openai_response_items.EXPECTED,
}


# What engines call otherwise.
_PARAM_NAMES: Final = {"messages": "input", "prompt": "input", "response_format": "text.format"}


class TextConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the answer must look like."""

    format: ResponseFormat | None = None


class ResponseRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/responses. None is what a client means by null: the default.

    `metadata`, `user`, `safety_identifier` and `prompt_cache_key` label a call for somebody else's
    dashboard; they have no bearing on the answer, which repeats the first two.
    """

    model: ModelName
    input: str | Annotated[list[Item], Meta(min_length=1, max_length=MAX_TURNS)]
    instructions: str | None = None
    max_output_tokens: TokenCount | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    include: list[str] | None = None
    tools: ResponseTools | None = None
    tool_choice: ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    stream: bool | None = None
    metadata: Labels | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


def decode(body: bytes) -> Decoded:
    """The request that a body holds. Raises RequestError (400)."""
    fields = read_object(body)
    schema.take_unsupported(fields, UNSUPPORTED)
    if isinstance(fields.get("text"), dict):
        schema.take_unsupported(fields["text"], _UNSUPPORTED_TEXT, "text.")
    tidy_items(fields.get("input"))
    return _to_decoded(schema.check(fields, ResponseRequest, _EXPECTED))


def encode_stream(events: AsyncIterator[GenerationEvent], call: Call) -> AsyncIterator[bytes]:
    """The answer as named events, ending in one that says how it ended."""
    return encode_events(events, ResponseFrames(call))


async def encode_whole(events: AsyncIterator[GenerationEvent], call: Call) -> bytes:
    """The answer as one object. Raises the RequestError or EngineError that a Failed stands for."""
    return msgspec.json.encode(to_response(await gather(events), call))


def _to_decoded(request: ResponseRequest) -> Decoded:
    check_model(request.model)
    format_ = (request.text and request.text.format) or TextFormat()
    return Decoded(
        model=request.model,
        prompts=(_to_prompt(request),),
        sampling=_to_sampling(request),
        stopping=StopConditions(max_tokens=request.max_output_tokens),
        n=1,
        stream=bool(request.stream),
        include_usage=True,
        output_format=format_.to_output_format("text.format"),
        param_names=_PARAM_NAMES,
        repeated=_to_repeated(request, format_),
    )


def _to_prompt(request: ResponseRequest) -> ChatPrompt:
    instructions = (
        ()
        if request.instructions is None
        else (Message(role="system", content=request.instructions),)
    )
    tools = to_tools(request.tools)
    return ChatPrompt(
        messages=(*instructions, *to_messages(request.input)),
        tools=tools,
        tool_choice=to_tool_choice(request.tool_choice, tools),
        parallel_tool_calls=request.parallel_tool_calls is not False,
    )


def _to_sampling(request: ResponseRequest) -> SamplingParams:
    for at, name in enumerate(request.include or ()):
        if name not in _INCLUDABLE:
            raise invalid_parameter(f"include[{at}]", f"expected one of {', '.join(_INCLUDABLE)}")
    wants_logprobs = _INCLUDABLE[0] in (request.include or ())
    return SamplingParams(
        temperature=1.0 if request.temperature is None else request.temperature,
        top_p=1.0 if request.top_p is None else request.top_p,
        logprobs=wants_logprobs or bool(request.top_logprobs),
        num_top_logprobs=request.top_logprobs or 0,
    )


def _to_repeated(request: ResponseRequest, format_: ResponseFormat) -> Mapping[str, Any]:
    return {
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {},
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": {"format": format_},
        "tool_choice": request.tool_choice or "auto",
        "tools": request.tools or [],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "user": request.user,
    }
