"""What a tokenizer is made of, whichever files it was read from."""

import re
from typing import Final

from msgspec import Struct
from tokenizers import Tokenizer

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE: Final = "▁"


class Vocabulary(Struct, frozen=True, kw_only=True):
    """The tokens of one model.

    - `splitter` makes control tokens of their texts, `plain` leaves them text
    - `pieces`: the bytes of every token, none of a control token
    - `control`: texts of control tokens; `defined`: texts of others that are found before words are
    - `cuts_at_control`: whether a text may be cut in two before a control token
    - `closing_ids`: what ends a text that is to be embedded; `ending_ids`: what ends an answer
    """

    splitter: Tokenizer
    plain: Tokenizer
    pieces: tuple[bytes, ...]
    control: frozenset[str]
    defined: frozenset[str]
    ending_ids: frozenset[int]
    cuts_at_control: bool = True
    adds_bos: bool = False
    closing_ids: tuple[int, ...] = ()
    bos_text: str = ""
    eos_text: str = ""
    chat_template: str | None = None


def make_plain(splitter: Tokenizer) -> Tokenizer:
    """A copy for which the texts of control tokens are text like any other."""
    plain = Tokenizer.from_str(splitter.to_str())
    plain.encode_special_tokens = True
    return plain


def byte_level_piece(text: str) -> bytes:
    """The bytes of a token whose text has a character for each (GPT-2)."""
    try:
        return bytes(_BYTES[character] for character in text)
    except KeyError:
        return text.encode()


def sentencepiece_piece(text: str) -> bytes:
    """The bytes of a token whose text has a sign for a space, or is the name of a byte."""
    byte = _BYTE_TOKEN.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace(_SPACE, " ").encode()


def _byte_characters() -> dict[str, int]:
    """GPT-2's characters for bytes: themselves where they can be seen, others from 256 on."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    unseen = [byte for byte in range(256) if byte not in seen]
    shifted = {chr(256 + number): byte for number, byte in enumerate(unseen)}
    return {chr(byte): byte for byte in seen} | shifted


_BYTES: Final = _byte_characters()
