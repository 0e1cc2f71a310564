"""The shapes in which OpenAI's completions and embeddings take text: one or many, or as ids."""

from typing import Annotated, TypeAlias, TypeGuard

from msgspec import Meta

from appliance.generation import TextPrompt, TokenPrompt
from gateway.wire.openai_params import TokenId
from gateway.wire.schema import invalid_parameter

TokenIds = Annotated[list[TokenId], Meta(min_length=1)]
PromptText = Annotated[str, Meta(min_length=1)]
PromptList: TypeAlias = list[PromptText | TokenId | TokenIds]


def to_prompts(prompt: str | PromptList, param: str) -> tuple[TextPrompt | TokenPrompt, ...]:
    """The prompts in our words. Raises RequestError (400)."""
    if isinstance(prompt, str):
        return (TextPrompt(text=prompt),)
    if _are_texts(prompt):
        return tuple(TextPrompt(text=text) for text in prompt)
    if _are_ids(prompt):
        return (TokenPrompt(token_ids=tuple(prompt)),)
    if _are_id_lists(prompt):
        return tuple(TokenPrompt(token_ids=tuple(ids)) for ids in prompt)
    raise invalid_parameter(param, "expected texts, token ids or lists of token ids, not a mix")


def _are_texts(prompt: PromptList) -> TypeGuard[list[str]]:
    return all(isinstance(item, str) for item in prompt)


def _are_ids(prompt: PromptList) -> TypeGuard[list[int]]:
    return all(isinstance(item, int) for item in prompt)


def _are_id_lists(prompt: PromptList) -> TypeGuard[list[list[int]]]:
    return all(isinstance(item, list) for item in prompt)
