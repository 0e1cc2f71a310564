"""Which chunks are computed together: single tokens apart, and short rows apart from long ones."""

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from appliance.generation import SamplingParams
from engines.llamacpp.calls import arrange, num_runs
from engines.runner import Chunk
from engines.sequence import Sequence

SEQUENCE = Sequence(
    request_id="r",
    index=0,
    num_prompt_tokens=1,
    token_ids=[0],
    max_tokens=1,
    sampling=SamplingParams(),
    seed=0,
)


def chunk(length: int, start: int = 0, num_drafts: int = 0) -> Chunk:
    return Chunk(
        sequence=SEQUENCE, start=start, length=length, samples=True, drafts=(7,) * num_drafts
    )


def test_single_tokens_go_together_and_apart_from_prompts() -> None:
    chunks = [chunk(1, 30), chunk(17), chunk(1, 40), chunk(1, 50, num_drafts=3)]
    assert arrange(chunks, [3, 2, 1, 0], 4000) == [[2, 0], [3, 1]]


def test_no_prompt_is_one_token_longer_than_another_of_its_call() -> None:
    assert arrange([chunk(10), chunk(11), chunk(12), chunk(10)], [0, 1, 2, 3], 4000) == [
        [0, 2, 3],
        [1],
    ]


def test_short_rows_get_a_call_of_their_own_beside_a_long_one() -> None:
    chunks = [chunk(1, 4000), *(chunk(1, 60) for _ in range(7))]
    assert arrange(chunks, list(range(8)), 4260) == [[0], [1, 2, 3, 4, 5, 6, 7]]


def test_where_a_call_costs_more_than_it_saves_all_stay_together() -> None:
    chunks = [chunk(1, 4000), chunk(1, 60)]
    assert arrange(chunks, [0, 1], 4260) == [[0, 1]]


def test_a_cut_that_leaves_gaps_between_slots_must_pay_for_them() -> None:
    chunks = [chunk(1, 4000 * (number % 2)) for number in range(8)]
    apart, mixed = [0, 4, 1, 5, 2, 6, 3, 7], list(range(8))
    assert len(arrange(chunks, apart, 4260)) == 2
    assert len(arrange(chunks, mixed, 4260)) == 1


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 4000), st.integers(0, 8)), max_size=16),
    st.integers(1, 10_000),
    st.randoms(),
)
def test_every_chunk_is_in_one_call(
    shapes: list[tuple[int, int, int]], cells_per_call: int, random: Random
) -> None:
    chunks = [chunk(*shape) for shape in shapes]
    slots = list(range(len(chunks)))
    random.shuffle(slots)
    calls = arrange(chunks, slots, cells_per_call)
    assert sorted(number for call in calls for number in call) == list(range(len(chunks)))
    for call in calls:
        lengths = sorted({chunks[n].length + len(chunks[n].drafts) for n in call})
        assert lengths == [1] or 1 not in lengths
        assert all(b - a != 1 for a, b in pairwise(lengths))
        assert [slots[n] for n in call] == sorted(slots[n] for n in call)


def test_runs_are_groups_of_neighbours() -> None:
    assert num_runs([]) == 0
    assert num_runs([3, 1, 2, 7]) == 2
