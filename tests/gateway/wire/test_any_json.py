"""Whatever stands in a field, the outcome is a request or a refusal, and nothing of it leaks."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from appliance.errors import RequestError
from gateway.wire import (
    anthropic,
    openai_chat,
    openai_completions,
    openai_embeddings,
    openai_errors,
    openai_responses,
    vllm_tokens,
)
from gateway.wire.call import Asked

SECRET = "IBAN TR33 0006"

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**320), max_value=10**320)
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from([SECRET, "text", "user", "function", "auto", "none", "", 0, 1, 2**63])
)
keys = st.text(max_size=4) | st.sampled_from(["role", "content", "type", "text", "id", "5"])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)

CHAT_FIELDS = sorted({*openai_chat.ChatRequest.__struct_fields__, *openai_chat.UNSUPPORTED, "x"})
TEXT_FIELDS = sorted(
    {*openai_completions.CompletionRequest.__struct_fields__, *openai_completions.UNSUPPORTED, "x"}
)
MESSAGE_FIELDS = ["role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "x"]
ITEM_FIELDS = ["role", "content", "call_id", "name", "arguments", "output", "status", "phase"]
item_types = st.sampled_from(["message", "function_call", "function_call_output", "reasoning"])
BLOCK_FIELDS = ["text", "id", "name", "input", "tool_use_id", "content", "cache_control"]
block_types = st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image"])
sides = st.sampled_from(["user", "assistant", "system"])
ROLES = ["system", "developer", "user", "assistant", "tool"]


def check_outcome(route: Any, body: bytes) -> None:
    try:
        decoded = route.decode(body)
    except RequestError as error:
        assert 400 <= error.status < 500
        assert set(json.loads(openai_errors.to_answer(error).body)) == {"error"}
        assert SECRET not in error.message
        assert SECRET not in (error.param or "")
    else:
        assert isinstance(decoded, Asked)


@given(st.dictionaries(st.sampled_from(CHAT_FIELDS), values, max_size=3))
@settings(deadline=None)
def test_any_value_in_any_chat_parameter(fields: dict[str, Any]) -> None:
    plain = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    check_outcome(openai_chat, json.dumps(plain | fields).encode())


@given(st.dictionaries(st.sampled_from(MESSAGE_FIELDS), values, max_size=4), st.sampled_from(ROLES))
@settings(deadline=None)
def test_any_value_in_any_part_of_a_message(fields: dict[str, Any], role: str) -> None:
    message = {"role": role, "content": "hi"} | fields
    check_outcome(openai_chat, json.dumps({"model": "m", "messages": [message]}).encode())


@given(st.dictionaries(st.sampled_from(TEXT_FIELDS), values, max_size=3))
@settings(deadline=None)
def test_any_value_in_any_completions_parameter(fields: dict[str, Any]) -> None:
    check_outcome(openai_completions, json.dumps({"model": "m", "prompt": "hi"} | fields).encode())


def fields_of(struct: type[Struct], unsupported: Iterable[str] = ()) -> st.SearchStrategy[Any]:
    names = sorted({*struct.__struct_fields__, *unsupported, "x"})
    return st.dictionaries(st.sampled_from(names), values, max_size=3)


@given(fields_of(openai_responses.ResponseRequest, openai_responses.UNSUPPORTED))
@settings(deadline=None)
def test_any_value_in_any_responses_parameter(fields: dict[str, Any]) -> None:
    check_outcome(openai_responses, json.dumps({"model": "m", "input": "hi"} | fields).encode())


@given(st.dictionaries(keys | st.sampled_from(ITEM_FIELDS), values, max_size=4), item_types)
@settings(deadline=None)
def test_any_value_in_any_item(fields: dict[str, Any], kind: str) -> None:
    item = {"type": kind} | fields
    check_outcome(openai_responses, json.dumps({"model": "m", "input": [item]}).encode())


@given(fields_of(anthropic.MessagesRequest, anthropic.UNSUPPORTED))
@settings(deadline=None)
def test_any_value_in_any_messages_parameter(fields: dict[str, Any]) -> None:
    plain = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    check_outcome(anthropic, json.dumps(plain | fields).encode())


@given(st.dictionaries(st.sampled_from(BLOCK_FIELDS), values, max_size=4), block_types, sides)
@settings(deadline=None)
def test_any_value_in_any_block(fields: dict[str, Any], kind: str, role: str) -> None:
    turns = [{"role": role, "content": [{"type": kind} | fields]}, {"role": "user", "content": "x"}]
    body = {"model": "m", "max_tokens": 1, "messages": turns}
    check_outcome(anthropic, json.dumps(body).encode())


@given(fields_of(openai_embeddings.EmbeddingBody))
@settings(deadline=None)
def test_any_value_in_any_embeddings_parameter(fields: dict[str, Any]) -> None:
    check_outcome(openai_embeddings, json.dumps({"model": "m", "input": "hi"} | fields).encode())


@given(fields_of(vllm_tokens.TokenizeBody, vllm_tokens.UNSUPPORTED))
@settings(deadline=None)
def test_any_value_in_any_tokenize_parameter(fields: dict[str, Any]) -> None:
    check_outcome(vllm_tokens, json.dumps({"model": "m"} | fields).encode())


@pytest.mark.parametrize(
    "route",
    [
        anthropic,
        openai_chat,
        openai_completions,
        openai_embeddings,
        openai_responses,
        vllm_tokens,
    ],
)
@given(body=st.binary(max_size=64) | values.map(lambda value: json.dumps(value).encode()))
@settings(deadline=None)
def test_any_bytes(route: Any, body: bytes) -> None:
    check_outcome(route, body)


@given(cut=st.integers(min_value=0), flipped=st.integers(min_value=0), bit=st.integers(0, 7))
@settings(deadline=None)
def test_a_good_body_cut_short_and_with_a_bit_flipped(cut: int, flipped: int, bit: int) -> None:
    plain = {"model": "m", "messages": [{"role": "user", "content": "ğ\\\n"}], "stop": ["a"]}
    body = bytearray(json.dumps(plain, ensure_ascii=False).encode())
    body[flipped % len(body)] ^= 1 << bit
    check_outcome(openai_chat, bytes(body[: cut % (2 * len(body))]))
