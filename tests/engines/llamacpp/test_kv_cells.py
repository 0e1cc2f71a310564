"""Slots are shared within a salt, never across, and running sequences sit side by side."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from appliance.generation import SamplingParams
from engines.llamacpp.kv_cells import KvCells, Load, Order, Save
from engines.sequence import Sequence

CONTEXT_TOKENS = 64


def make_sequence(token_ids: list[int], salt: bytes = b"a") -> Sequence:
    return Sequence(
        request_id="r",
        index=0,
        num_prompt_tokens=len(token_ids),
        token_ids=list(token_ids),
        max_tokens=10,
        sampling=SamplingParams(),
        seed=1,
        cache_salt=salt,
    )


class Engine:
    """KvCells with a model of the memory that its orders are carried out in."""

    def __init__(
        self, num_slots: int, *, shares_prefixes: bool = True, saved_tokens: int = 0
    ) -> None:
        self.kv = KvCells(
            num_slots,
            CONTEXT_TOKENS,
            shares_prefixes=shares_prefixes,
            saved_tokens=saved_tokens,
        )
        self.cells: list[list[tuple[bytes, int]]] = [[] for _ in range(num_slots)]
        self.running: list[Sequence] = []
        self.num_copies = 0
        self.num_saves = 0
        self.num_loads = 0

    def admit(self, sequence: Sequence) -> bool:
        admitted = self.kv.admit(sequence)
        if admitted:
            self.running.append(sequence)
        return admitted

    def run(self, token_ids: list[int], salt: bytes = b"a") -> Sequence:
        """Admit and compute a prompt."""
        sequence = make_sequence(token_ids, salt)
        assert self.admit(sequence)
        self.step()
        return sequence

    def step(self, num_tokens: int = CONTEXT_TOKENS) -> None:
        """Compute up to `num_tokens` of each running sequence."""
        self.kv.close_gaps()
        for order in self.kv.take_orders():
            self.carry_out(order)
        for sequence in self.running:
            start, cells = sequence.num_computed, self.cells[sequence.kv.slot]
            assert cells == [(sequence.cache_salt, t) for t in sequence.token_ids[:start]]
            new = sequence.token_ids[start : start + num_tokens]
            cells += [(sequence.cache_salt, token_id) for token_id in new]
            sequence.num_computed += len(new)

    def carry_out(self, order: Order) -> None:
        if isinstance(order, Save):
            assert order.state.num_tokens == len(self.cells[order.slot])
            order.state.data = self.cells[order.slot].copy()
            self.num_saves += 1
        elif isinstance(order, Load):
            self.cells[order.slot] = order.state.data[: order.num_tokens]
            self.num_loads += 1
        else:
            assert len(self.cells[order.source]) >= order.num_tokens
            self.num_copies += order.source != order.destination
            self.cells[order.destination] = self.cells[order.source][: order.num_tokens]

    def release(self, sequence: Sequence, *, reusable: bool = True) -> None:
        self.running.remove(sequence)
        self.kv.release(sequence, reusable=reusable)

    def slots(self) -> list[int]:
        return sorted(sequence.kv.slot for sequence in self.running)


def test_a_released_prompt_is_reused_in_place() -> None:
    engine = Engine(4)
    engine.release(engine.run(list(range(40))))
    again = engine.run([*range(40), 99])
    assert again.num_cached == 40
    assert engine.num_copies == 0


def test_at_least_one_token_is_left_to_compute() -> None:
    engine = Engine(4)
    engine.release(engine.run(list(range(40))))
    assert engine.run(list(range(40))).num_cached == 39


def test_nothing_is_shared_across_salts() -> None:
    """vllm-project/vllm#16016 (CVE-2025-46570)."""
    engine = Engine(4)
    engine.release(engine.run(list(range(40)), b"tenant a"))
    assert engine.run(list(range(40)), b"tenant b").num_cached == 0
    assert engine.run(list(range(40)), b"tenant a").num_cached == 39


def test_a_running_prompt_is_shared_by_copying_it() -> None:
    engine = Engine(4)
    engine.run(list(range(40)))
    assert engine.run([*range(40), 99]).num_cached == 40
    assert engine.num_copies == 1


def test_a_prompt_still_being_computed_is_shared_as_far_as_it_is() -> None:
    engine = Engine(4)
    first, second = make_sequence(list(range(40))), make_sequence([*range(40), 1])
    engine.admit(first)
    engine.step(20)
    engine.admit(second)
    assert second.num_cached == 20


def test_a_short_prefix_is_not_worth_a_copy() -> None:
    engine = Engine(4)
    engine.run(list(range(6)))
    assert engine.run([*range(6), 99]).num_cached == 0
    assert engine.num_copies == 0


def test_a_failed_sequence_leaves_nothing_for_reuse() -> None:
    engine = Engine(4)
    engine.release(engine.run(list(range(40))), reusable=False)
    assert engine.run(list(range(40))).num_cached == 0


def test_the_least_recently_used_memory_gives_way() -> None:
    engine = Engine(3)
    for first in (1, 2, 3):
        engine.release(engine.run([first] * 40))
    engine.release(engine.run([4] * 40))
    assert [engine.kv._cache.longest(b"a", [first] * 40)[1] for first in (1, 2, 3, 4)] == [
        0,
        40,
        40,
        40,
    ]


def test_a_long_memory_survives_a_short_match_beside_it() -> None:
    engine = Engine(3)
    long_one = [*range(20), *range(100, 140)]
    engine.release(engine.run(long_one))
    assert engine.run([*range(20), 7]).num_cached == 20
    assert engine.run([*long_one, 8]).num_cached == 60


def test_running_sequences_are_admitted_side_by_side() -> None:
    engine = Engine(8)
    for first in range(8):
        engine.release(engine.run([first] * 40))
    for first in (7, 0, 4, 2):
        engine.run([first] * 40)
    slots = engine.slots()
    assert slots == list(range(slots[0], slots[0] + 4))
    assert all(sequence.num_cached == 39 for sequence in engine.running)


def test_a_gap_that_lasts_is_closed_and_nothing_is_forgotten() -> None:
    engine = Engine(8)
    sequences = [engine.run([first] * 40) for first in range(5)]
    engine.release(sequences[2])
    for _ in range(8):
        engine.step()
    slots = engine.slots()
    assert slots == list(range(slots[0], slots[0] + 4))
    assert engine.run([2] * 40).num_cached == 39


def test_a_full_memory_or_a_long_prompt_changes_nothing() -> None:
    engine = Engine(1)
    assert not engine.kv.admit(make_sequence([1] * (CONTEXT_TOKENS + 1)))
    first = engine.run([1] * CONTEXT_TOKENS)
    assert not engine.kv.grow(first, CONTEXT_TOKENS + 1)
    assert not engine.kv.admit(make_sequence([2]))
    assert (engine.kv.used_tokens, engine.kv.cached_tokens) == (CONTEXT_TOKENS, 0)
    engine.release(first)
    assert (engine.kv.used_tokens, engine.kv.cached_tokens) == (0, CONTEXT_TOKENS)
    assert engine.kv.total_tokens == CONTEXT_TOKENS


def test_memory_that_cannot_be_trimmed_is_never_shared() -> None:
    engine = Engine(2, shares_prefixes=False)
    engine.release(engine.run(list(range(40))))
    assert engine.run(list(range(40))).num_cached == 0


def ask(engine: Engine, prompt: list[int], salt: bytes = b"a") -> int:
    """Compute a prompt and leave; how many of its tokens were there already."""
    sequence = engine.run(prompt, salt)
    engine.release(sequence)
    return sequence.num_cached


def test_more_prompts_than_slots_stay_reusable() -> None:
    engine = Engine(2, saved_tokens=400)
    prompts = [[first] * 40 for first in range(8)]
    assert [ask(engine, prompt) for prompt in prompts] == [0] * 8
    assert [ask(engine, [*prompt, 99]) for prompt in prompts] == [40] * 8
    assert engine.num_loads >= 6


def test_a_shared_beginning_is_saved_once_and_not_with_every_question() -> None:
    engine = Engine(1, saved_tokens=1000)
    for number in range(20):
        system = [number % 2] * 50
        assert ask(engine, [*system, 100 + number]) == (50 if number > 1 else 0)
    assert engine.num_saves == 2
    assert engine.kv.saved_tokens == 2 * 51


def test_a_conversation_that_goes_on_takes_the_place_of_its_beginning() -> None:
    engine = Engine(1, saved_tokens=1000)
    ask(engine, [1] * 32)
    ask(engine, [2] * 40)
    assert engine.kv.saved_tokens == 32
    assert ask(engine, [1] * 64) == 32
    assert ask(engine, [2] * 40) == 39
    assert engine.kv.saved_tokens == 64 + 40


def test_what_a_slot_holds_too_is_not_saved() -> None:
    engine = Engine(3, saved_tokens=1000)
    first = [engine.run([*range(40), 100 + number]) for number in range(3)]
    for sequence in first:
        engine.release(sequence)
    ask(engine, [7] * 40)
    assert engine.num_saves == 0


def test_the_end_of_a_memory_taken_over_is_saved_where_it_is_long() -> None:
    engine = Engine(1, saved_tokens=1000)
    ask(engine, [*range(20), *range(100, 140)])
    assert ask(engine, [*range(20), 7]) == 20
    assert ask(engine, [*range(20), *range(100, 140), 8]) == 60


def test_saved_prefixes_keep_to_their_room_and_the_least_recently_used_goes() -> None:
    engine = Engine(1, saved_tokens=100)
    for first in range(3):
        ask(engine, [first] * 40)
    assert engine.kv.saved_tokens == 80
    assert ask(engine, [0] * 41) == 40
    assert ask(engine, [9] * 40) == 0
    assert engine.kv.saved_tokens == 80
    assert [ask(engine, [first] * 40) for first in (0, 1)] == [39, 0]


def test_a_prompt_longer_than_the_room_is_not_saved() -> None:
    engine = Engine(1, saved_tokens=39)
    ask(engine, [1] * 40)
    ask(engine, [2] * 40)
    assert (engine.num_saves, engine.kv.saved_tokens) == (0, 0)


def test_no_saved_prefix_is_shared_across_salts() -> None:
    """vllm-project/vllm#16016 (CVE-2025-46570)."""
    engine = Engine(1, saved_tokens=1000)
    ask(engine, [1] * 40, b"tenant a")
    ask(engine, [2] * 40, b"tenant a")
    assert ask(engine, [1] * 40, b"tenant b") == 0
    assert ask(engine, [1] * 40, b"tenant a") == 39


def test_prompts_admitted_together_share_what_the_first_of_them_brings() -> None:
    engine = Engine(4, saved_tokens=1000)
    for first in range(8):
        ask(engine, [first] * 40)
    together = [make_sequence([*[0] * 40, 100 + number]) for number in range(3)]
    assert all(engine.admit(sequence) for sequence in together)
    engine.step()
    assert [sequence.num_cached for sequence in together] == [40] * 3


class AnyTraffic(RuleBasedStateMachine):
    """Whatever comes and goes, a slot holds the tokens its sequence says are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(5)

    @initialize(saved_tokens=st.sampled_from([0, 100, 1000]))
    def choose_room(self, saved_tokens: int) -> None:
        self.engine = Engine(5, saved_tokens=saved_tokens)

    @rule(
        family=st.integers(0, 3),
        length=st.integers(1, 40),
        tail=st.lists(st.integers(0, 2), max_size=10),
        salt=st.sampled_from([b"a", b"b"]),
    )
    def arrive(self, family: int, length: int, tail: list[int], salt: bytes) -> None:
        shared = [family * 100 + i for i in range(length)]
        has_room = len(self.engine.running) < 5
        assert self.engine.admit(make_sequence(shared + tail, salt)) == has_room

    @rule(num_steps=st.integers(1, 6), num_tokens=st.integers(1, 30), new_token=st.integers(0, 2))
    def step(self, num_steps: int, num_tokens: int, new_token: int) -> None:
        for _ in range(num_steps):
            self.engine.step(num_tokens)
            for sequence in self.engine.running:
                if not sequence.num_uncomputed and len(sequence.token_ids) < CONTEXT_TOKENS:
                    sequence.token_ids.append(new_token)

    @precondition(lambda self: self.engine.running)
    @rule(data=st.data(), reusable=st.booleans())
    def leave(self, data: Any, reusable: bool) -> None:
        index = data.draw(st.integers(0, len(self.engine.running) - 1))
        self.engine.release(self.engine.running[index], reusable=reusable)

    @invariant()
    def slots_are_told_apart_and_counted(self) -> None:
        slots = self.engine.slots()
        assert len(slots) == len(set(slots))
        kv = self.engine.kv
        assert kv.used_tokens + kv.cached_tokens <= kv.total_tokens
        assert kv.saved_tokens <= kv._saved.room_tokens


AnyTraffic.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
TestAnyTraffic = AnyTraffic.TestCase
