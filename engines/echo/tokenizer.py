"""The echo engine's vocabulary: bytes, a few English pieces, and control markers.

Ids 0-255 are bytes, so a character outside ASCII is always split over tokens; then come the
pieces, so that a token may hold several characters; then the markers. Encoding takes the longest
piece at every place and is undone exactly by joining `piece()`s.
"""

import re
from collections.abc import Iterator
from typing import Final

from engines.reasoning import THINK_END

_PIECES: Final = (
    b"assistant",
    b"system",
    b"tool",
    b"user",
    b"hello",
    b" world",
    b" the",
    b" and",
    b" is",
    b" of",
    b" to",
    b"ing",
    b"er",
    b"on",
    b"th",
    b"  ",
    b"\n\n",
    THINK_END.encode(),
)
BOS: Final = "<|begin|>"
TURN_START: Final = "<|im_start|>"
TURN_END: Final = "<|im_end|>"
_MARKERS: Final = (BOS, TURN_START, TURN_END, "<|end|>")
_ENDINGS: Final = (TURN_END, "<|end|>")

_BYTES: Final = tuple(bytes([value]) for value in range(256))
_PLAIN: Final = _BYTES + _PIECES
_PLAIN_IDS: Final = {piece: token_id for token_id, piece in enumerate(_PLAIN)}
_MARKER_IDS: Final = {
    marker: token_id for token_id, marker in enumerate(_MARKERS, start=len(_PLAIN))
}
_LONGEST_PIECE: Final = re.compile(
    b"|".join(re.escape(piece) for piece in sorted(_PIECES, key=len, reverse=True)) + b"|(?s:.)"
)
_MARKER: Final = re.compile("(" + "|".join(map(re.escape, _MARKERS)) + ")")

# Tools come first, in a turn of their own, and thoughts of earlier turns are left out. So answers
# may hold `<tool_call>` and `<think>` blocks; echo writes them where the user did.
_CHAT_TEMPLATE: Final = (
    "{{ bos_token }}"
    "{%- if tools -%}"
    "<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n"
    "{%- endif -%}"
    "{%- for message in messages -%}"
    "<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}"
    f"{{{{ message['content'].split('{THINK_END}')[-1] }}}}"
    "{%- else %}{{ message['content'] }}{% endif -%}"
    "{%- for call in message.get('tool_calls', []) -%}"
    "<tool_call>{{ call['function'] | tojson }}</tool_call>"
    "{%- endfor -%}"
    "<|im_end|>\n"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{%- endif -%}"
)


class EchoTokenizer:
    """The vocabulary above as an `engines.runner.Tokenizer`. Stateless, so safe in any thread."""

    vocabulary_size: Final = len(_PLAIN) + len(_MARKERS)
    chat_template: Final = _CHAT_TEMPLATE
    bos_text: Final = BOS
    eos_text: Final = TURN_END
    adds_bos: Final = True
    closing_ids: Final = ()
    control_markers: Final = tuple(sorted(_MARKERS, key=len, reverse=True))

    def encode(self, text: str, *, markers: bool) -> list[int]:
        """Token ids of `text`; with `markers`, the texts of control tokens become them."""
        if not markers:
            return _encode_plain(text)
        token_ids: list[int] = []
        for part in _MARKER.split(text):
            marker_id = _MARKER_IDS.get(part)
            token_ids += _encode_plain(part) if marker_id is None else [marker_id]
        return token_ids

    def encode_parts(self, text: str, *, markers: bool) -> Iterator[list[int]]:
        """The same, in one part: this takes no time."""
        yield self.encode(text, markers=markers)

    def piece(self, token_id: int) -> bytes:
        """The bytes of a token; empty for a marker."""
        return _PLAIN[token_id] if token_id < len(_PLAIN) else b""

    def ends_generation(self, token_id: int) -> bool:
        """Whether this token ends an answer."""
        return token_id >= len(_PLAIN) and _MARKERS[token_id - len(_PLAIN)] in _ENDINGS


def marker_id(marker: str) -> int:
    """The token id of a control marker."""
    return _MARKER_IDS[marker]


def _encode_plain(text: str) -> list[int]:
    return [_PLAIN_IDS[match[0]] for match in _LONGEST_PIECE.finditer(text.encode())]
