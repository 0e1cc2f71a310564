"""OpenAI's completions: which requests are understood, and what is sent back."""

from collections.abc import AsyncIterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from appliance.generation import GenerationEvent
from gateway.wire import schema
from gateway.wire.answer import fold
from gateway.wire.body import read_object
from gateway.wire.call import Call, Decoded
from gateway.wire.openai_completions_answer import CompletionFrames, to_completion
from gateway.wire.openai_params import (
    EXPECTED,
    MAX_TOKEN_ID,
    UNSUPPORTED_SPELLINGS,
    SharedParams,
    check_shared,
    to_output_format,
    to_sampling,
    to_stopping,
    wants_usage,
)
from gateway.wire.openai_prompts import PromptList, PromptText, to_prompts
from gateway.wire.schema import Unsupported, invalid_parameter, unsupported_parameter
from gateway.wire.sse import encode_events

MAX_CHOICES: Final = 128
# OpenAI's documented default of this route; chat has none.
DEFAULT_MAX_TOKENS: Final = 16

UNSUPPORTED: Final = {
    "suffix": Unsupported("the models of this box cannot fill in", ("",)),
}


class CompletionRequest(SharedParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/completions.

    `max_tokens` 0 asks for the prompt alone: with `echo` for its text, with `logprobs` for theirs.
    """

    prompt: PromptText | Annotated[PromptList, Meta(min_length=1)]
    max_tokens: Annotated[int, Meta(ge=0, le=MAX_TOKEN_ID)] | None = None
    best_of: int | None = None
    echo: bool | None = None
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None


def decode(body: bytes) -> Decoded:
    """The request that a body holds. Raises RequestError (400)."""
    fields = read_object(body)
    schema.take_unsupported(fields, UNSUPPORTED | UNSUPPORTED_SPELLINGS)
    return _to_decoded(schema.check(fields, CompletionRequest, EXPECTED))


def encode_stream(events: AsyncIterator[GenerationEvent], call: Call) -> AsyncIterator[bytes]:
    """The answer as server-sent events, ending in `[DONE]` whatever happens."""
    return encode_events(events, CompletionFrames(call))


async def encode_whole(events: AsyncIterator[GenerationEvent], call: Call) -> bytes:
    """The answer as one object. Raises the RequestError or EngineError that a Failed stands for."""
    return msgspec.json.encode(to_completion(await fold(events), call))


def _to_decoded(request: CompletionRequest) -> Decoded:
    check_shared(request)
    n = request.n or 1
    if request.best_of not in (None, n):
        raise unsupported_parameter("best_of", "every sample is returned; leave it out")
    prompts = to_prompts(request.prompt, "prompt")
    if len(prompts) * n > MAX_CHOICES:
        raise invalid_parameter("prompt", f"expected at most {MAX_CHOICES} prompts times `n`")
    max_tokens = DEFAULT_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    format_name, output_format = to_output_format(request)
    return Decoded(
        model=request.model,
        prompts=prompts,
        sampling=to_sampling(request, request.logprobs),
        stopping=to_stopping(request, max_tokens),
        n=n,
        stream=bool(request.stream),
        include_usage=wants_usage(request),
        output_format=output_format,
        param_names={"messages": "prompt", "response_format": format_name},
        echoes_prompt=bool(request.echo),
    )
