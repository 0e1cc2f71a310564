"""The numbers that both of OpenAI's routes write: usage, and logprobs that JSON can hold."""

from typing import Final

from msgspec import Struct

from appliance.generation import Usage

# OpenAI's stand-in for the logprob of an impossible token, where JSON has no -Infinity.
_LEAST_LOGPROB: Final = -9999.0


class PromptTokensDetails(Struct, frozen=True):
    """How much of the prompt was found in the prefix cache."""

    cached_tokens: int


class CompletionUsage(Struct, frozen=True):
    """What a request consumed."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def to_usage(usage: Usage) -> CompletionUsage:
    """Usage in OpenAI's words."""
    return CompletionUsage(
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.prompt_tokens + usage.completion_tokens,
        PromptTokensDetails(usage.cached_tokens),
    )


def finite(logprob: float) -> float:
    """The same logprob, or OpenAI's least one where it is -inf or not a number."""
    return max(_LEAST_LOGPROB, logprob)
