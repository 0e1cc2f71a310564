"""Usage as OpenAI's chat completions and completions write it."""

from msgspec import Struct

from appliance.generation import Usage


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
