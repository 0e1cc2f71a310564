"""Blocks of keys and values: shared, kept, given out again, saved and fetched back."""

import pytest

from appliance.generation import SamplingParams
from engines.pytorch.block_saves import Load, Save
from engines.pytorch.kv_blocks import KvBlocks
from engines.sequence import Sequence

BLOCK = 4
PROMPT = list(range(1, 15))


def make_kv(num_blocks: int = 8, *, num_places: int = 0) -> KvBlocks:
    return KvBlocks(
        num_blocks, num_slots=4, context_tokens=64, block_tokens=BLOCK, num_places=num_places
    )


def make_sequence(
    token_ids: list[int], *, salt: bytes = b"", leader: Sequence | None = None
) -> Sequence:
    return Sequence(
        request_id="r",
        index=0,
        num_prompt_tokens=len(token_ids),
        token_ids=token_ids.copy(),
        max_tokens=64,
        sampling=SamplingParams(),
        seed=0,
        cache_salt=salt,
        leader=leader,
    )


def computed(kv: KvBlocks, token_ids: list[int], *, salt: bytes = b"") -> Sequence:
    """A running sequence whose prompt is computed."""
    sequence = make_sequence(token_ids, salt=salt)
    assert kv.admit(sequence)
    sequence.num_computed = len(token_ids)
    assert kv.grow(sequence, len(token_ids))
    return sequence


def blocks_of(kv: KvBlocks, sequence: Sequence) -> list[int]:
    table = sequence.kv
    return kv.tables[table.row, : len(table.blocks)].tolist()


def test_a_prompt_gets_as_many_blocks_as_it_fills() -> None:
    kv = make_kv()
    sequence = computed(kv, PROMPT)
    assert len(set(blocks_of(kv, sequence))) == 4
    assert kv.used_tokens == 4 * BLOCK
    kv.release(sequence, reusable=False)
    assert (kv.used_tokens, kv.cached_tokens) == (0, 0)


def test_a_running_prompt_is_shared_block_by_block_and_nothing_is_copied() -> None:
    kv = make_kv()
    first = computed(kv, PROMPT)
    second = make_sequence(PROMPT)
    assert kv.admit(second)
    assert blocks_of(kv, second)[:3] == blocks_of(kv, first)[:3]
    assert blocks_of(kv, second)[3] != blocks_of(kv, first)[3]
    assert second.num_computed == second.num_cached == 12
    assert kv.used_tokens == 5 * BLOCK
    assert kv.take_copies() == []


def test_choices_of_a_prompt_take_a_block_each_beside_the_shared_ones() -> None:
    """vllm#39647: four choices computed and held the prompt four times."""
    kv = make_kv()
    first = computed(kv, PROMPT)
    for _ in range(3):
        choice = make_sequence(PROMPT, leader=first)
        assert kv.admit(choice, spare_tokens=BLOCK)
        assert choice.block_digests == first.block_digests
    assert kv.used_tokens == (4 + 3) * BLOCK


def test_one_token_of_a_known_prompt_is_left_to_compute() -> None:
    kv = make_kv()
    kv.release(computed(kv, PROMPT[:12]))
    again = make_sequence(PROMPT[:12])
    assert kv.admit(again)
    assert again.num_computed == 8


def test_salts_share_nothing() -> None:
    """vllm#16016 (CVE-2025-46570): the time of an answer told what another had asked."""
    kv = make_kv()
    kv.release(computed(kv, PROMPT, salt=b"a"))
    for salt, num_found in ((b"b", 0), (b"a\x00", 0), (b"a", 12)):
        other = make_sequence(PROMPT, salt=salt)
        assert kv.admit(other)
        assert other.num_cached == num_found
        kv.release(other, reusable=False)


def test_no_salt_can_look_like_another_salts_first_block() -> None:
    kv = make_kv()
    first = computed(kv, PROMPT[:5])
    assert first.block_digests is not None
    other = computed(kv, PROMPT[4:9], salt=first.block_digests[0])
    assert other.num_cached == 0
    assert other.block_digests != computed(kv, PROMPT[:9]).block_digests[1:]  # type: ignore[index]


def test_the_end_of_what_is_kept_goes_first_and_what_is_empty_before_it() -> None:
    kv = make_kv()
    kept = computed(kv, PROMPT)
    blocks = blocks_of(kv, kept)
    kv.release(kept)
    other = make_sequence([50] * (6 * BLOCK))
    assert kv.admit(other)
    given = blocks_of(kv, other)
    assert given[-1] == blocks[2]
    assert not {blocks[0], blocks[1]} & set(given)
    assert kv.cached_tokens == 2 * BLOCK


def test_what_is_found_is_not_given_out_for_the_same_prompt() -> None:
    """The hit blocks are the next to be evicted, and the prompt needs all blocks there are."""
    kv = make_kv()
    first = computed(kv, PROMPT)
    blocks = blocks_of(kv, first)
    kv.release(first)
    longer = make_sequence(PROMPT[:12] + [60] * (5 * BLOCK))
    assert kv.admit(longer)
    assert longer.num_cached == 12
    assert blocks_of(kv, longer)[:3] == blocks[:3]
    assert len(set(blocks_of(kv, longer))) == 8


def test_a_sequence_that_does_not_fit_changes_nothing() -> None:
    kv = make_kv()
    kv.release(computed(kv, PROMPT))
    running = computed(kv, [70] * 9)
    before = (kv.used_tokens, kv.cached_tokens)
    too_long = make_sequence(PROMPT + [1] * 16)
    assert not kv.admit(too_long)
    assert (kv.used_tokens, kv.cached_tokens) == before
    assert too_long.kv is None
    assert not kv.admit(make_sequence(PROMPT), spare_tokens=2 * BLOCK)
    assert kv.admit(make_sequence(PROMPT), spare_tokens=BLOCK)
    assert not kv.grow(running, 21)


def test_no_more_sequences_than_slots_run() -> None:
    kv = make_kv()
    running = [computed(kv, [number]) for number in range(4)]
    assert not kv.admit(make_sequence([9]))
    kv.release(running[0])
    assert kv.admit(make_sequence([9]))


def test_guessed_tokens_are_never_found() -> None:
    kv = make_kv()
    sequence = computed(kv, PROMPT[:3])
    assert kv.grow(sequence, 3 + 4)  # room for guesses, which a step computes and does not take
    sequence.token_ids.append(99)
    assert kv.grow(sequence, 4)
    other = make_sequence(PROMPT)
    assert kv.admit(other)
    assert other.num_cached == 0
    sequence.num_computed = 4
    assert kv.grow(sequence, 5)
    kv.release(sequence)
    told = make_sequence([*PROMPT[:3], 99, 1])
    assert kv.admit(told)
    assert told.num_cached == 4


def test_what_a_failed_sequence_computed_is_found_no_more() -> None:
    kv = make_kv()
    failed = computed(kv, PROMPT)
    kv.release(failed, reusable=False)
    again = make_sequence(PROMPT)
    assert kv.admit(again)
    assert again.num_cached == 0


def test_a_block_that_is_needed_is_saved_and_fetched_back_on_a_hit() -> None:
    kv = make_kv(num_places=8)
    first = computed(kv, PROMPT)
    blocks = blocks_of(kv, first)
    kv.release(first)
    filler = computed(kv, [80] * (8 * BLOCK))
    saves = kv.take_copies()
    assert [copy.block for copy in saves] == [blocks[2], blocks[1], blocks[0]]
    assert all(isinstance(copy, Save) for copy in saves)
    assert kv.saved_tokens == 12
    kv.release(filler, reusable=False)
    again = make_sequence(PROMPT)
    assert kv.admit(again)
    assert again.num_cached == 12
    loads = kv.take_copies()
    assert all(isinstance(copy, Load) for copy in loads)
    assert [copy.place for copy in loads] == [copy.place for copy in reversed(saves)]
    assert [copy.block for copy in loads] == blocks_of(kv, again)[:3]
    assert kv.saved_tokens == 12


def test_a_saved_block_that_is_on_its_way_back_keeps_its_place() -> None:
    """To load three blocks, three others are taken and saved, where there are three places."""
    kv = make_kv(num_places=3)
    kv.release(computed(kv, PROMPT))
    kv.release(computed(kv, [*range(100, 100 + 8 * BLOCK)]))
    assert kv.saved_tokens == 12
    kv.take_copies()
    assert kv.admit(make_sequence(PROMPT))
    copies = kv.take_copies()
    assert [type(copy) for copy in copies[:3]] == [Load] * 3
    assert kv.saved_tokens == 12


@pytest.mark.parametrize("num_places", [0, 8])
def test_what_is_saved_goes_when_there_is_no_more_room(num_places: int) -> None:
    kv = make_kv(num_places=num_places)
    for start in range(100, 500, 100):
        kv.release(computed(kv, [*range(start, start + 8 * BLOCK)]))
    assert kv.saved_tokens == num_places * BLOCK
