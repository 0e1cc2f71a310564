"""The echo engine's vocabulary is reversible and splits what real ones split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.echo.tokenizer import TURN_END, TURN_START, EchoTokenizer

tokenizer = EchoTokenizer()
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    [TURN_START, "user\n hello world", "<|im_", "ing er on"]
)


@given(texts, st.booleans())
def test_the_pieces_joined_are_the_text_but_for_the_markers(
    text: str,
    markers: bool,
) -> None:
    token_ids = tokenizer.encode(text, markers=markers)
    said = b"".join(map(tokenizer.piece, token_ids)).decode()
    expected = text
    if markers:
        for marker in tokenizer.control_markers:
            expected = expected.replace(marker, "")
    assert said == expected
    assert all(0 <= token_id < tokenizer.vocabulary_size for token_id in token_ids)


def test_characters_split_over_tokens_and_tokens_hold_several_characters() -> None:
    assert len(tokenizer.encode("ğ👩", markers=False)) == 6
    assert len(tokenizer.encode("hello world", markers=False)) == 2


@pytest.mark.parametrize("marker", tokenizer.control_markers)
def test_a_marker_is_one_token_only_where_markers_are_meant(marker: str) -> None:
    (token_id,) = tokenizer.encode(marker, markers=True)
    assert tokenizer.piece(token_id) == b""
    assert len(tokenizer.encode(marker, markers=False)) > 1


def test_only_an_end_marker_ends_an_answer() -> None:
    (turn_end,) = tokenizer.encode(TURN_END, markers=True)
    (turn_start,) = tokenizer.encode(TURN_START, markers=True)
    assert tokenizer.ends_generation(turn_end)
    assert not tokenizer.ends_generation(turn_start)
    assert not tokenizer.ends_generation(ord("a"))
