"""One expression for many words finds what trying each of them would."""

import re

from hypothesis import given
from hypothesis import strategies as st

from engines.any_of import any_of

WORDS = st.lists(st.text("ab<|", max_size=5), max_size=8)


@given(words=WORDS, text=st.text("ab<|", max_size=40))
def test_the_longest_word_at_each_place_is_found(words: list[str], text: str) -> None:
    longest_first = sorted(filter(None, words), key=len, reverse=True)
    plain = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
    assert any_of(words).findall(text) == plain.findall(text)


def test_no_words_are_found_nowhere() -> None:
    assert any_of([]).search("anything") is None
    assert any_of([""]).search("") is None
