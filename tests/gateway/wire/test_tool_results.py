"""A result that answers no call is refused on every route that takes a conversation."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from appliance.errors import RequestError
from gateway.wire import anthropic, openai_chat, openai_responses, vllm_tokens

USER = {"role": "user", "content": "hi"}


def chat_turns(called: str, answered: str) -> list[dict[str, Any]]:
    function = {"name": "find", "arguments": "{}"}
    call = {"id": called, "type": "function", "function": function}
    return [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": answered, "content": "found"},
    ]


def response_items(called: str, answered: str) -> list[dict[str, Any]]:
    return [
        USER,
        {"type": "function_call", "call_id": called, "name": "find", "arguments": "{}"},
        {"type": "function_call_output", "call_id": answered, "output": "found"},
    ]


def anthropic_turns(called: str, answered: str) -> list[dict[str, Any]]:
    use = {"type": "tool_use", "id": called, "name": "find", "input": {}}
    result = {"type": "tool_result", "tool_use_id": answered, "content": "found"}
    return [
        USER,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]


Decode = Callable[[bytes], Any]
Turns = Callable[[str, str], list[dict[str, Any]]]
ROUTES = [
    (openai_chat.decode, "messages", {}, chat_turns, "messages[2].tool_call_id"),
    (vllm_tokens.decode, "messages", {}, chat_turns, "messages[2].tool_call_id"),
    (openai_responses.decode, "input", {}, response_items, "input[2].call_id"),
    (
        anthropic.decode,
        "messages",
        {"max_tokens": 1},
        anthropic_turns,
        "messages[2].content[].tool_use_id",
    ),
]


@pytest.mark.parametrize(("decode", "name", "more", "turns", "param"), ROUTES)
def test_a_result_must_answer_a_call_before_it(
    decode: Decode, name: str, more: dict[str, int], turns: Turns, param: str
) -> None:
    def body(called: str, answered: str) -> bytes:
        return json.dumps({"model": "m", name: turns(called, answered), **more}).encode()

    decode(body("call_1", "call_1"))
    with pytest.raises(RequestError) as refused:
        decode(body("call_1", "call_2"))
    assert (refused.value.status, refused.value.param) == (400, param)


@pytest.mark.parametrize(("decode", "name", "more", "turns"), [route[:4] for route in ROUTES])
def test_a_call_may_stay_without_a_result(
    decode: Decode, name: str, more: dict[str, int], turns: Turns
) -> None:
    without = [*turns("call_1", "call_1")[:2], USER]
    decode(json.dumps({"model": "m", name: without, **more}).encode())
