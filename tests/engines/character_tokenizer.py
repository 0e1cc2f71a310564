"""A tokenizer that a test can read: a token a character, and one for each control marker."""

from collections.abc import Iterator

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKERS = ("<|im_start|>", "<|im_end|>", "</s>", "<s>")


class CharacterTokenizer:
    """A token a character, and one for each marker above 0x110000: ids that a test can read."""

    vocabulary_size = 0x110000 + len(MARKERS)
    control_markers = MARKERS
    bos_text = "<s>"
    eos_text = "</s>"

    def __init__(self, chat_template: str | None = CHATML, *, adds_bos: bool = False) -> None:
        self.chat_template = chat_template
        self.adds_bos = adds_bos

    def encode(self, text: str, *, markers: bool) -> list[int]:
        token_ids = []
        while text:
            marker = next((m for m in MARKERS if markers and text.startswith(m)), None)
            token_ids.append(0x110000 + MARKERS.index(marker) if marker else ord(text[0]))
            text = text[len(marker or text[0]) :]
        return token_ids

    def encode_parts(self, text: str, *, markers: bool) -> Iterator[list[int]]:
        yield self.encode(text, markers=markers)

    def piece(self, token_id: int) -> bytes:
        return chr(token_id).encode() if token_id < 0x110000 else b""

    def ends_generation(self, token_id: int) -> bool:
        return token_id >= 0x110000


def show(token_ids: list[int]) -> str:
    """The text of token ids, real markers in guillemets."""
    return "".join(
        f"«{MARKERS[token_id - 0x110000]}»" if token_id >= 0x110000 else chr(token_id)
        for token_id in token_ids
    )
