"""OpenAI's chat completions: which requests are understood, and what is sent back.

A parameter is honoured, or stands in `UNSUPPORTED`, or is unknown: no fourth way.
"""

from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from appliance.generation import ChatPrompt, GenerationEvent
from gateway.wire import openai_messages, openai_params, schema
from gateway.wire.answer import fold
from gateway.wire.body import read_object
from gateway.wire.call import Call, Decoded
from gateway.wire.openai_chat_answer import ChatFrames, to_chat_completion
from gateway.wire.openai_messages import Turn, tidy_messages, to_messages
from gateway.wire.openai_params import (
    UNSUPPORTED_SPELLINGS,
    Labels,
    SharedParams,
    TokenCount,
    check_shared,
    to_output_format,
    to_sampling,
    to_stopping,
    wants_usage,
)
from gateway.wire.openai_tools import ChatToolChoice, ChatTools, to_tool_choice, to_tools
from gateway.wire.schema import MAX_TURNS, Unsupported, invalid_parameter
from gateway.wire.sse import encode_events

_OLDER_TOOLS: Final = "send `tools` and `tool_choice`"
_TEXT_ONLY: Final = "the models of this box read and write text"

UNSUPPORTED: Final = {
    "audio": Unsupported(_TEXT_ONLY),
    "function_call": Unsupported(_OLDER_TOOLS, ("none", "auto")),
    "functions": Unsupported(_OLDER_TOOLS, ([],)),
    "modalities": Unsupported(_TEXT_ONLY, (["text"],)),
    "moderation": Unsupported("guardrails are set by the operator of the box"),
    "prediction": Unsupported("there is no speculative decoding"),
    "prompt_cache_options": Unsupported("the prefix cache has no options", ({},)),
    "prompt_cache_retention": Unsupported("prefixes are cached in memory", ("in_memory",)),
    "reasoning_effort": Unsupported("whether a model thinks first is set per model", ("none",)),
    "service_tier": Unsupported("there is one tier", ("auto", "default")),
    "store": Unsupported("answers are not stored", (False,)),
    "verbosity": Unsupported("ask for it in the prompt", ("medium",)),
    "web_search_options": Unsupported("the box searches no web"),
}
_EXPECTED: Final = {
    "tool_choice": "expected none, auto, required or one function",
    "tool_choice.type": "expected `function`",
    "tools[].type": "expected `function`",
    **openai_messages.EXPECTED,
    **openai_params.EXPECTED,
}


class ChatRequest(SharedParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/chat/completions.

    `metadata`, `safety_identifier` and `prompt_cache_key` are checked and have no bearing on the
    answer: they label a call for somebody else's dashboard, and the prefix cache needs no key.
    """

    messages: Annotated[list[Turn], Meta(min_length=1, max_length=MAX_TURNS)]
    tools: ChatTools | None = None
    tool_choice: ChatToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_completion_tokens: TokenCount | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    metadata: Labels | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


def decode(body: bytes) -> Decoded:
    """The request that a body holds. Raises RequestError (400)."""
    fields = read_object(body)
    schema.take_unsupported(fields, UNSUPPORTED | UNSUPPORTED_SPELLINGS)
    tidy_messages(fields.get("messages"))
    return _to_decoded(schema.check(fields, ChatRequest, _EXPECTED))


def encode_stream(events: AsyncIterator[GenerationEvent], call: Call) -> AsyncIterator[bytes]:
    """The answer as server-sent events, ending in `[DONE]` whatever happens."""
    return encode_events(events, ChatFrames(call))


async def encode_whole(events: AsyncIterator[GenerationEvent], call: Call) -> bytes:
    """The answer as one object. Raises the RequestError or EngineError that a Failed stands for."""
    return msgspec.json.encode(to_chat_completion(await fold(events), call))


def _to_decoded(request: ChatRequest) -> Decoded:
    check_shared(request)
    if request.top_logprobs and not request.logprobs:
        raise invalid_parameter("top_logprobs", "allowed only when `logprobs` is true")
    max_tokens = request.max_completion_tokens or request.max_tokens
    format_name, output_format = to_output_format(request)
    return Decoded(
        model=request.model,
        prompts=(_to_prompt(request),),
        sampling=to_sampling(request, (request.top_logprobs or 0) if request.logprobs else None),
        stopping=to_stopping(request, max_tokens),
        n=request.n or 1,
        stream=bool(request.stream),
        include_usage=wants_usage(request),
        output_format=output_format,
        param_names={"prompt": "messages", "response_format": format_name},
    )


def _to_prompt(request: ChatRequest) -> ChatPrompt:
    tools = to_tools(request.tools)
    return ChatPrompt(
        messages=to_messages(request.messages),
        tools=tools,
        tool_choice=to_tool_choice(request.tool_choice, tools),
        parallel_tool_calls=request.parallel_tool_calls is not False,
    )
