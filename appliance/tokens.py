"""What a model's tokenizer is asked, and what it answers."""

from msgspec import Struct

from appliance.generation import ChatPrompt, TextPrompt


class TokenizeRequest(Struct, frozen=True, kw_only=True, tag="tokenize"):
    """A prompt to be cut into tokens.

    `adds_special_tokens` says whether the tokens that the model wants around a text are added; a
    chat is rendered by the model's template, which writes its own.
    """

    model: str
    prompt: TextPrompt | ChatPrompt
    adds_special_tokens: bool = True


class Tokenized(Struct, frozen=True, kw_only=True, tag="tokenized"):
    """The prompt's tokens, and how many the model's context holds."""

    token_ids: tuple[int, ...]
    context_tokens: int


class DetokenizeRequest(Struct, frozen=True, kw_only=True, tag="detokenize"):
    """Tokens to be put together to text."""

    model: str
    token_ids: tuple[int, ...]


class Detokenized(Struct, frozen=True, kw_only=True, tag="detokenized"):
    """The text of these tokens."""

    text: str
