"""Guesses from a sequence's own tokens."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engines.drafting import MIN_MATCH, Drafter, Passages

texts = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def longest_by_search(token_ids: list[int]) -> int:
    """The length of the longest match of the end with an earlier place, found the slow way."""
    best = 0
    for place in range(MIN_MATCH, len(token_ids)):
        length = 0
        while (
            length < place
            and token_ids[place - 1 - length] == token_ids[len(token_ids) - 1 - length]
        ):
            length += 1
        best = max(best, length)
    return best if best >= MIN_MATCH else 0


@given(texts)
def test_the_longest_earlier_match_is_found_however_the_tokens_came(token_ids: list[int]) -> None:
    at_once, one_by_one = Passages(), Passages()
    at_once.update(token_ids)
    for end in range(1, len(token_ids) + 1):
        one_by_one.update(token_ids[:end])
    place, length = at_once.longest(token_ids)
    assert one_by_one.longest(token_ids) == (place, length)
    assert length <= longest_by_search(token_ids)
    assert bool(length) == bool(longest_by_search(token_ids))
    assert token_ids[place - length : place] == token_ids[len(token_ids) - length :] or not length


def test_of_two_places_the_one_with_more_in_common_is_followed() -> None:
    token_ids = [1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 1, 2, 3, 4]
    assert Drafter(token_ids).guess(token_ids, 1) == (50,)


def test_a_copy_is_guessed_to_go_on() -> None:
    token_ids = [*range(20), 5, 6, 7]
    assert Drafter(token_ids).guess(token_ids, 4) == (8, 9, 10, 11)


def test_a_repetition_is_guessed_beyond_its_end() -> None:
    """vllm#41758: one word over and over."""
    token_ids = [9, 1, 2, 3, 1, 2, 3, 1, 2]
    assert Drafter(token_ids).guess(token_ids, 7) == (3, 1, 2, 3, 1, 2, 3)


def test_without_a_match_there_is_no_chance() -> None:
    token_ids = list(range(20))
    drafter = Drafter(token_ids)
    assert drafter.chances(8) == []
    token_ids.append(3)
    drafter.follow(token_ids)
    assert drafter.chances(8) == []


def test_after_one_replaced_token_the_copy_goes_on() -> None:
    token_ids = [*range(20), 3, 4, 5]
    drafter = Drafter(token_ids)
    token_ids.append(77)  # in place of 6
    drafter.follow(token_ids)
    assert drafter.guess(token_ids, 3) == (7, 8, 9)
    token_ids.append(78)  # a second one: it is no copy any more
    drafter.follow(token_ids)
    assert drafter.chances(3) == []


def test_chances_fall_with_every_token_and_follow_what_came() -> None:
    token_ids = [*range(100), 3, 4, 5]
    drafter = Drafter(token_ids)
    at_first = drafter.chances(15)
    assert all(0 < after < before <= 1 for before, after in pairwise(at_first))
    for token_id in range(6, 60):
        token_ids.append(token_id)
        drafter.follow(token_ids)
    copying = drafter.chances(15)
    assert copying[-1] > at_first[-1]
    assert copying[-1] > 0.5


def test_guesses_that_never_come_true_lose_their_chance() -> None:
    token_ids = [0, 1, 2, 3, 4] * 2
    drafter = Drafter(token_ids)
    for number in range(60):
        for token_id in (1000 + number, 2000 + number, 1, 2, 3):
            token_ids.append(token_id)
            drafter.follow(token_ids)
    assert drafter.chances(1)[0] < 0.2


@given(texts, texts)
def test_many_tokens_at_once_are_followed_like_one_at_a_time(
    prompt: list[int], output: list[int]
) -> None:
    """Whatever is accepted in one step, the guesses stay in step with the tokens."""
    token_ids = [*prompt, *output]
    followed = Drafter(prompt)
    followed.follow(token_ids)
    place = followed.guess(token_ids, 1) if followed.chances(1) else ()
    assert len(place) <= 1
    assert all(token_id in token_ids for token_id in place)
