"""vLLM's /tokenize and /detokenize: which requests are understood, and what is sent back."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from appliance.generation import ChatPrompt, TextPrompt, TokenPrompt
from appliance.tokens import Detokenized, Tokenized
from gateway.wire import openai_messages, schema
from gateway.wire.body import read_object
from gateway.wire.call import Asked
from gateway.wire.openai_messages import Turn, tidy_messages, to_messages
from gateway.wire.openai_params import ModelName, TokenId, check_model
from gateway.wire.openai_tools import ChatTools, to_tools
from gateway.wire.schema import MAX_TURNS, Unsupported, invalid_parameter, missing_parameter

UNSUPPORTED: Final = {
    "add_generation_prompt": Unsupported("a chat is counted as it would be answered", (True,)),
    "chat_template": Unsupported("a model brings its own template"),
    "chat_template_kwargs": Unsupported("a template has no settings", ({},)),
    "continue_final_message": Unsupported("an answer that is begun is not continued", (False,)),
    "return_token_strs": Unsupported("ask /detokenize", (False,)),
}
_EXPECTED: Final = {"tools[].type": "expected `function`", **openai_messages.EXPECTED}


class TokenizeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /tokenize: `prompt` or `messages`, not both."""

    model: ModelName
    prompt: str | None = None
    messages: Annotated[list[Turn], Meta(min_length=1, max_length=MAX_TURNS)] | None = None
    tools: ChatTools | None = None
    add_special_tokens: bool | None = None


class DetokenizeBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /detokenize."""

    model: ModelName
    tokens: list[TokenId]


class AskedTokens(Asked, frozen=True, kw_only=True):
    """One prompt, whose tokens are wanted."""

    prompts: tuple[TextPrompt | ChatPrompt]
    adds_special_tokens: bool


class AskedText(Asked, frozen=True, kw_only=True):
    """Tokens, whose text is wanted."""

    prompts: tuple[TokenPrompt]


class WireTokens(Struct, frozen=True):
    """The tokens of a prompt; `max_model_len` is how many the model's context holds."""

    count: int
    max_model_len: int
    tokens: tuple[int, ...]


class WireText(Struct, frozen=True):
    """The text of tokens."""

    prompt: str


def decode(body: bytes) -> AskedTokens:
    """The request that a body of /tokenize holds. Raises RequestError (400)."""
    fields = read_object(body)
    schema.take_unsupported(fields, UNSUPPORTED)
    tidy_messages(fields.get("messages"))
    request = schema.check(fields, TokenizeBody, _EXPECTED)
    check_model(request.model)
    return AskedTokens(
        model=request.model,
        prompts=(_to_prompt(request),),
        adds_special_tokens=request.add_special_tokens is not False,
    )


def encode(tokenized: Tokenized) -> bytes:
    """The answer of /tokenize."""
    ids = tokenized.token_ids
    return msgspec.json.encode(WireTokens(len(ids), tokenized.context_tokens, ids))


def decode_tokens(body: bytes) -> AskedText:
    """The request that a body of /detokenize holds. Raises RequestError (400)."""
    request = schema.check(read_object(body), DetokenizeBody)
    check_model(request.model)
    prompt = TokenPrompt(token_ids=tuple(request.tokens))
    return AskedText(model=request.model, prompts=(prompt,))


def encode_text(detokenized: Detokenized) -> bytes:
    """The answer of /detokenize."""
    return msgspec.json.encode(WireText(detokenized.text))


def _to_prompt(request: TokenizeBody) -> TextPrompt | ChatPrompt:
    if request.messages is None:
        if request.prompt is None:
            raise missing_parameter("prompt")
        if request.tools:
            raise invalid_parameter("tools", "allowed only beside `messages`")
        return TextPrompt(text=request.prompt)
    if request.prompt is not None:
        raise invalid_parameter("prompt", "not beside `messages`")
    if request.add_special_tokens:
        raise invalid_parameter("add_special_tokens", "a chat template writes its own")
    return ChatPrompt(messages=to_messages(request.messages), tools=to_tools(request.tools))
