"""The echo engine's pool counts every block, and gives cached ones up when they are needed."""

import pytest

from appliance.generation import SamplingParams
from engines.echo.kv_blocks import EchoKv
from engines.sequence import Sequence


def sequence_of(token_ids: list[int], salt: bytes = b"") -> Sequence:
    return Sequence(
        request_id="r",
        index=0,
        num_prompt_tokens=len(token_ids),
        token_ids=token_ids,
        max_tokens=10,
        sampling=SamplingParams(),
        seed=0,
        cache_salt=salt,
    )


def computed(kv: EchoKv, sequence: Sequence) -> Sequence:
    assert kv.admit(sequence)
    sequence.num_computed = len(sequence.token_ids)
    return sequence


@pytest.fixture
def kv() -> EchoKv:
    return EchoKv(total_tokens=12, block_tokens=4)


def test_a_sequence_takes_whole_blocks_and_grows_by_them(kv: EchoKv) -> None:
    sequence = computed(kv, sequence_of([1, 2, 3, 4]))
    assert kv.used_tokens == 4
    assert kv.grow(sequence, 5)
    assert kv.used_tokens == 8
    assert not kv.grow(sequence, 13)
    assert kv.used_tokens == 8


def test_what_does_not_fit_changes_nothing(kv: EchoKv) -> None:
    computed(kv, sequence_of([1, 2, 3, 4, 5]))
    other = sequence_of([6, 7, 8, 9, 10])
    assert not kv.admit(other)
    assert other.kv is None
    assert kv.used_tokens == 8


def test_a_released_sequence_is_cached_until_its_blocks_are_needed(kv: EchoKv) -> None:
    kv.release(computed(kv, sequence_of([1, 2, 3, 4, 5])))
    assert (kv.used_tokens, kv.cached_tokens) == (0, 8)
    again = sequence_of([1, 2, 3, 4, 5])
    assert kv.admit(again)
    assert (again.num_computed, again.num_cached) == (4, 4)
    kv.release(again, reusable=False)
    kv.release(computed(kv, sequence_of(list(range(20, 32)))))
    assert kv.cached_tokens == 12
    assert kv.admit(again)
    assert again.num_computed == 0


def test_the_least_recently_used_is_evicted_first(kv: EchoKv) -> None:
    for first in (1, 2, 3):
        kv.release(computed(kv, sequence_of([first] * 4)))
    kv.release(computed(kv, sequence_of([1] * 4)))
    kept = [sequence_of([first] * 4) for first in (1, 2)]
    kv.release(computed(kv, sequence_of([9] * 4)), reusable=False)
    for sequence in kept:
        assert kv.admit(sequence)
    assert [sequence.num_computed for sequence in kept] == [3, 0]


def test_what_failed_is_not_cached(kv: EchoKv) -> None:
    """sglang#33187: keys and values of a broken row are not to be reused."""
    kv.release(computed(kv, sequence_of([1, 2, 3])), reusable=False)
    assert (kv.used_tokens, kv.cached_tokens) == (0, 0)


def test_the_same_path_is_kept_once(kv: EchoKv) -> None:
    first, second = sequence_of([1, 2, 3]), sequence_of([1, 2, 3])
    computed(kv, first)
    computed(kv, second)
    kv.release(first)
    kv.release(second)
    assert kv.cached_tokens == 4


def test_a_running_sequence_shares_its_prompt_once_it_is_computed(kv: EchoKv) -> None:
    running = computed(kv, sequence_of([1, 2, 3, 4]))
    kv.grow(running, 4)
    other = sequence_of([1, 2, 3, 9])
    assert kv.admit(other)
    assert other.num_computed == 3
