"""Stop strings cut the text at their first occurrence, however the text arrives."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.stopping import StopMatcher

few_letters = st.text(alphabet="abc", max_size=30)
some_stops = st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=5).map(tuple)
places = st.lists(st.integers(min_value=0))


def cut_at_first_stop(text: str, stops: tuple[str, ...]) -> str:
    found = [text.find(stop) for stop in stops if stop in text]
    return text[: min(found)] if found else text


def feed(text: str, stops: tuple[str, ...], at: list[int]) -> tuple[str, bool]:
    matcher = StopMatcher(stops)
    edges = [0, *sorted(place % (len(text) + 1) for place in at), len(text)]
    shown = "".join(matcher.push(text[a:b]) for a, b in pairwise(edges))
    return shown + matcher.finish(), matcher.matched


@given(few_letters, some_stops, places)
def test_any_chunking_cuts_at_the_first_stop(
    text: str, stops: tuple[str, ...], at: list[int]
) -> None:
    assert feed(text, stops, at) == (
        cut_at_first_stop(text, stops),
        any(stop in text for stop in stops),
    )


@given(few_letters, some_stops)
def test_only_a_proper_prefix_of_a_stop_is_held_back(text: str, stops: tuple[str, ...]) -> None:
    """vllm-project/vllm#45636: holding back a fixed number of characters delays text."""
    matcher = StopMatcher(stops)
    shown = matcher.push(text)
    if not matcher.matched:
        held = text[len(shown) :]
        complete = [stop for stop in stops if stop in held]
        assert complete or not held or any(stop.startswith(held) for stop in stops)


def test_no_part_of_a_stop_split_over_tokens_is_shown() -> None:
    """vllm-project/vllm#3574."""
    matcher = StopMatcher(("DEFGHIJ",))
    assert [matcher.push(piece) for piece in ("ABC", "DE", "FGH", "IJK")] == ["ABC", "", "", ""]
    assert matcher.matched
    assert matcher.finish() == ""


def test_a_prefix_that_does_not_come_true_is_shown_as_soon_as_that_is_known() -> None:
    matcher = StopMatcher(("\n\nUser:",))
    assert [matcher.push(piece) for piece in ("a\n", "\nUs", "e it")] == ["a", "", "\n\nUse it"]
    assert not matcher.matched


def test_a_prefix_still_open_at_the_end_is_shown_by_finish() -> None:
    matcher = StopMatcher(("###",))
    assert matcher.push("a##") == "a"
    assert matcher.finish() == "##"


@given(few_letters, some_stops, places)
def test_the_stop_that_matched_is_named(text: str, stops: tuple[str, ...], at: list[int]) -> None:
    matcher = StopMatcher(stops)
    edges = [0, *sorted(place % (len(text) + 1) for place in at), len(text)]
    shown = "".join(matcher.push(text[a:b]) for a, b in pairwise(edges)) + matcher.finish()
    named = matcher.matched_stop
    assert (named is not None) == matcher.matched
    assert named is None or (named in stops and text.startswith(named, len(shown)))


def test_the_stop_that_starts_first_counts() -> None:
    matcher = StopMatcher(("abcdef", "cd"))
    assert [matcher.push(character) for character in "xabcdefy"] == ["x", *[""] * 7]
    assert matcher.matched


@pytest.mark.parametrize("stops", [("a" * 5000,), tuple(f"{n:04d}" for n in range(2000))])
def test_long_and_many_stops_cut_where_they_should(stops: tuple[str, ...]) -> None:
    matcher = StopMatcher(stops)
    text = "b" + "a" * 4999 + "b" + stops[-1] + "tail"
    shown = "".join(matcher.push(character) for character in text)
    assert matcher.matched
    assert shown == cut_at_first_stop(text, stops)
