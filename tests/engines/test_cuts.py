"""Texts are cut only where libllama, which finds long tokens first, would part them, too."""

from hypothesis import given
from hypothesis import strategies as st

from engines.cuts import Cuts

LETTERS = "<|>a "


def partition(text: str, specials: list[str]) -> list[str]:
    """The way libllama does it: one token after the other, the longest first."""
    parts = [text]
    for special in sorted(specials, key=len, reverse=True):
        found = [part if part in specials else part.split(special) for part in parts]
        parts = []
        for pieces in found:
            if isinstance(pieces, str):
                parts.append(pieces)
                continue
            for piece in pieces[:-1]:
                parts += [piece, special]
            parts.append(pieces[-1])
    return [part for part in parts if part]


@given(
    specials=st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=6),
    text=st.text(LETTERS, max_size=400),
)
def test_parts_have_the_tokens_of_the_whole(specials: list[str], text: str) -> None:
    parts = list(Cuts(specials).parts(text))
    assert "".join(parts) == text
    found = [piece for part in parts for piece in partition(part, specials)]
    assert found == partition(text, specials)


def test_a_conversation_is_cut_before_markers() -> None:
    cuts = Cuts(["<|im_start|>", "<|im_end|>", "<|end|>"])
    parts = list(cuts.parts("<|im_start|>user\nhi<|im_end|>\n" * 1_000))
    assert len(parts) > 20
    assert all(part.startswith("<|im_") for part in parts)


def test_nothing_is_cut_where_tokens_can_overlap() -> None:
    text = ">>A<<|b|>" * 1_000
    assert list(Cuts([">>A<<", "<|b|>"]).parts(text)) == [text]
