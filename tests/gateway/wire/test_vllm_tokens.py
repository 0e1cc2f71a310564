"""What becomes of /tokenize and /detokenize."""

import json
from typing import Any

import pytest

from appliance.errors import RequestError
from appliance.generation import ChatPrompt, Message, TextPrompt, TokenPrompt, Tool
from appliance.tokens import Detokenized, Tokenized
from gateway.wire.vllm_tokens import decode, decode_tokens, encode, encode_text

TALK = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "hi"}]


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "m"} | fields).encode()


@pytest.mark.parametrize("sent", ["hi", "", "<|im_end|>"])
def test_a_text_is_taken_as_it_stands(sent: str) -> None:
    decoded = decode(body(prompt=sent))
    assert (decoded.model, decoded.prompts) == ("m", (TextPrompt(text=sent),))
    assert decoded.adds_special_tokens
    assert not decode(body(prompt=sent, add_special_tokens=False)).adds_special_tokens


def test_a_chat_is_taken_as_it_would_be_answered() -> None:
    tools = [{"type": "function", "function": {"name": "find"}}]
    (prompt,) = decode(body(messages=TALK, tools=tools, add_generation_prompt=True)).prompts
    assert prompt == ChatPrompt(
        messages=(Message(role="system", content="Be brief."), Message(role="user", content="hi")),
        tools=(Tool(name="find"),),
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "prompt"),
        ({"prompt": "hi", "messages": TALK}, "prompt"),
        ({"prompt": ["hi"]}, "prompt"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "banana", "content": "x"}]}, "messages[0].role"),
        ({"messages": TALK, "add_special_tokens": True}, "add_special_tokens"),
        ({"messages": TALK, "add_generation_prompt": False}, "add_generation_prompt"),
        ({"messages": TALK, "tools": [{"type": "mcp"}]}, "tools[0].type"),
        ({"prompt": "hi", "tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"prompt": "hi", "return_token_strs": True}, "return_token_strs"),
        ({"prompt": "hi", "text": "hi"}, "text"),
        ({"prompt": "hi", "model": "a\nb"}, "model"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode(body(**fields))
    assert (caught.value.status, caught.value.param) == (400, param)


def test_tokens_are_counted() -> None:
    whole = json.loads(encode(Tokenized(token_ids=(5, 6, 5), context_tokens=8192)))
    assert whole == {"count": 3, "max_model_len": 8192, "tokens": [5, 6, 5]}


def test_tokens_become_text_again() -> None:
    assert decode_tokens(body(tokens=[5, 6])).prompts == (TokenPrompt(token_ids=(5, 6)),)
    assert decode_tokens(body(tokens=[])).prompts == (TokenPrompt(token_ids=()),)
    assert json.loads(encode_text(Detokenized(text="ğ"))) == {"prompt": "ğ"}
    for tokens in ([-1], ["5"], "5", None, [2**31]):
        with pytest.raises(RequestError):
            decode_tokens(body(tokens=tokens))
