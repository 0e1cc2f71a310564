"""More turns than any context holds are refused on every route that takes a conversation."""

import json
from collections.abc import Callable

import pytest

from appliance.errors import RequestError
from gateway.wire import anthropic, openai_chat, openai_responses, vllm_tokens
from gateway.wire.schema import MAX_TURNS

TURNS = [{"role": "user", "content": "a"}] * (MAX_TURNS + 1)


@pytest.mark.parametrize(
    ("decode", "name", "more"),
    [
        (openai_chat.decode, "messages", {}),
        (openai_responses.decode, "input", {}),
        (anthropic.decode, "messages", {"max_tokens": 1}),
        (vllm_tokens.decode, "messages", {}),
    ],
)
def test_too_many_turns_are_refused(
    decode: Callable[[bytes], object], name: str, more: dict[str, int]
) -> None:
    with pytest.raises(RequestError) as refused:
        decode(json.dumps({"model": "m", name: TURNS, **more}).encode())
    assert (refused.value.status, refused.value.param) == (400, name)
