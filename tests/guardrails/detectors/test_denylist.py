"""Denied words are found as whole words, in whatever disguise and whatever pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.errors import ConfigError
from guardrails.detectors.denylist import DenyList, Search
from guardrails.normalise import EDGE, symbols_of

WORDS = ("GIZLIKOD", "top secret", "ass", "hisar*", "机密", "c++", "kod", "ö")


def search_in(pieces: list[str], words: tuple[str, ...] = WORDS) -> tuple[str, Search]:
    search = Search(DenyList(words))
    released = ""
    for piece in pieces:
        released += search.feed(piece)
        if search.is_hit:
            return released, search
    return released + search.finish(), search


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the GIZLIKOD is", "GIZLIKOD"),
        ("gizlikod", "gizlikod"),
        ("GİZLİKOD!", "GİZLİKOD"),
        ("gı\u200bzlikod'un", "gı\u200bzlikod"),
        ("ｇｉｚｌｉｋｏｄ", "ｇｉｚｌｉｋｏｄ"),
        ("Top \n\n Secret.", "Top \n\n Secret"),
        ("Hisarlar", "Hisar"),
        ("这是机密文件", "机密"),
        ("write c++17", "c++"),
        ("_kod_", "kod"),
    ],
)
def test_a_denied_word_is_found_where_it_stands(text: str, found: str) -> None:
    released, search = search_in([text])
    assert search.is_hit
    assert text[search.start : search.end] == found
    assert released == text[: search.start]


@pytest.mark.parametrize(
    "text", ["class", "gizlikodlar", "bisarhisar", "topsecret", "top secrets", "kodak", "o", ""]
)
def test_part_of_a_longer_word_is_not_a_denied_word(text: str) -> None:
    released, search = search_in([text])
    assert not search.is_hit
    assert released == text


_CHARACTERS = "机密oﬁ.şIİx_ \n\u0308\u200b\0\U000e0100"
_texts = st.lists(
    st.sampled_from(
        ("GIZLI", "KOD", "gizlikod", "top", "secret", "ass", "hisar", "c++", *_CHARACTERS)
    ),
    max_size=12,
).map("".join)


@given(_texts, st.data())
def test_what_is_released_does_not_depend_on_the_pieces(text: str, data: st.DataObject) -> None:
    """BerriAI/litellm#41936: a value split over two chunks went out in clear."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole, in_whole = search_in([text])
    joined, in_pieces = search_in(pieces)
    assert (joined, in_pieces.is_hit) == (whole, in_whole.is_hit)
    assert text.startswith(whole)


@given(_texts)
def test_a_hit_is_exactly_a_run_of_the_words_symbols(text: str) -> None:
    words = [word for word in WORDS if not word.endswith("*")]
    expected = any(symbols_of(word) in symbols_of(text) for word in words)
    expected |= EDGE + "hisar" in symbols_of(text)
    assert search_in([text])[1].is_hit == expected


def test_text_that_begins_no_denied_word_is_not_held() -> None:
    search = Search(DenyList(["GIZLIKOD"]))
    assert search.feed("Hello") == "Hello"
    assert search.feed(" g") == " "
    assert search.feed("i") == ""
    assert search.feed("ve") == "give"
    assert search.feed("\n" * 1000) == "\n" * 1000


def test_an_unfinished_word_is_free_when_the_text_ends() -> None:
    assert search_in(["say GIZLIKO"])[0] == "say GIZLIKO"


@pytest.mark.parametrize("word", ["", "  ", "*", "\u200b"])
def test_a_word_without_a_character_is_refused(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        DenyList(["fine", word])
    assert caught.value.code == "config.out_of_range"


def test_thousands_of_words_and_a_long_hostile_text_are_searched_to_the_end() -> None:
    words = tuple(f"a{'a' * (number % 50)}b{number}" for number in range(5000))
    released, search = search_in(["a" * 50_000], words)
    assert not search.is_hit
    assert len(released) == 50_000
