"""Incremental detokenising never shows half a character and loses none."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.detokenize import Detokenizer


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(st.text(), st.lists(st.integers(min_value=0)))
def test_any_cutting_of_a_text_gives_the_text_back(text: str, places: list[int]) -> None:
    detokenizer = Detokenizer()
    shown = [detokenizer.push(piece) for piece in cut(text.encode(), places)]
    assert "".join(shown) + detokenizer.finish() == text
    assert all("\ufffd" not in piece for piece in shown) or "\ufffd" in text


@given(st.binary(max_size=24), st.lists(st.integers(min_value=0)))
def test_invalid_bytes_decode_as_in_one_piece(data: bytes, places: list[int]) -> None:
    detokenizer = Detokenizer()
    shown = "".join(detokenizer.push(piece) for piece in cut(data + b".", places))
    assert shown + detokenizer.finish() == (data + b".").decode(errors="replace")


@pytest.mark.parametrize("text", ["ğ", "ş", "\u0131", "İ", "聪", "👩‍👩‍👧‍👦", "e\u0301"])
def test_a_text_fed_byte_by_byte_appears_whole(text: str) -> None:
    """ggml-org/llama.cpp#4036, huggingface/text-generation-inference#333."""
    detokenizer = Detokenizer()
    assert "".join(detokenizer.push(bytes([byte])) for byte in text.encode()) == text


def test_a_character_cut_off_by_the_end_is_dropped() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.push("ok 👍".encode()[:-1]) == "ok "
    assert detokenizer.finish() == ""
