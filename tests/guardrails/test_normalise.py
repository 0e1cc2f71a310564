"""Which texts count as the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guardrails.normalise import EDGE, clusters_of, symbols_of


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("GİZLİ", "gizli"),
        ("GIZLI", "gızlı"),
        ("ｇｉｚｌｉ", "gizli"),
        ("gi\u200bz\u00adl\ufeffi", "gizli"),
        ("gi\0zli", "gizli"),
        ("cafe\u0301", "café"),
        ("i\u0307", "i"),
        ("STRASSE", "straße"),
        ("top \n\t secret", "top secret"),
        ("ﬁn", "fin"),
        ("\u1112\u1161\u11ab", "한"),
    ],
)
def test_texts_that_look_the_same_have_the_same_symbols(one: str, other: str) -> None:
    assert symbols_of(one) == symbols_of(other)


@pytest.mark.parametrize(("one", "other"), [("şık", "sık"), ("café", "cafe"), ("a b", "ab")])
def test_different_words_stay_different(one: str, other: str) -> None:
    assert symbols_of(one) != symbols_of(other)


def test_words_stand_between_edges_and_characters_of_unspaced_scripts_each_alone() -> None:
    assert symbols_of("a-bc").split(EDGE) == ["", "a", "-", "bc", ""]
    assert symbols_of("机密").split(EDGE) == ["", "机", "密", ""]


@given(st.text())
def test_clusters_joined_are_the_text(text: str) -> None:
    assert "".join(clusters_of(text)) == text


def test_a_flood_of_marks_makes_no_cluster_longer_than_a_stream_safe_one() -> None:
    assert max(map(len, clusters_of("a" + "\u0301\u0316" * 10_000))) <= 31
