"""Whatever comes and goes, llama.cpp's memory holds what KvCells says, and nothing is left over."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final
from weakref import ref

import llama_cpp.llama_cpp as llama

from appliance.generation import SamplingParams
from engines.llamacpp.kv_cells import Load, Move, Save
from engines.llamacpp.runner import LlamaRunner, start
from engines.runner import Chunk, RunnerOptions, Sampled, StepPlan
from engines.sequence import Sequence
from tests.engines.llamacpp.llama_file import NUM_TOKENS, write_llama

NUM_OPERATIONS: Final = 10_000
NUM_SLOTS: Final = 5
CONTEXT_TOKENS: Final = 128
MOST_WAITING: Final = 8
# Room for some hundreds of tokens outside the slots.
PREFIX_BYTES: Final = 512 * 1024
EVERYTHING: Final = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=20)


def test_ten_thousand_operations_leave_nothing_behind(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "tiny.gguf")
    with tiny(path, NUM_SLOTS, PREFIX_BYTES) as runner, tiny(path) as fresh:
        walk = Walk(runner, fresh, Random(7))  # noqa: S311
        for _ in range(NUM_OPERATIONS):
            walk.operate()
        walk.end_all()
        walk.forget_all()
    happened = ("saved", "loaded", "copied", "reused", "forked", "pre-empted", "cut short")
    assert all(walk.counts[what] >= 100 for what in happened), walk.counts


@contextmanager
def tiny(path: Path, num_slots: int = 1, prefix_bytes: int = 0) -> Iterator[LlamaRunner]:
    """Deterministic: a token is computed to the same bit whatever is beside or before it."""
    options = RunnerOptions(
        model="tiny",
        path=path,
        context_tokens=CONTEXT_TOKENS,
        num_slots=num_slots,
        num_threads=1,
        prefix_bytes=prefix_bytes,
        deterministic=True,
    )
    runner = start(options)
    assert isinstance(runner, LlamaRunner)
    with closing(runner):
        yield runner


class Walk:
    """Random operations on a runner, and what must be so after each; `fresh` never shares."""

    def __init__(self, runner: LlamaRunner, fresh: LlamaRunner, draw: Random) -> None:
        self.runner = runner
        self.fresh = fresh
        self.draw = draw
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.reused: set[Sequence] = set()
        self.answers: dict[Sequence, Sampled] = {}
        self.states: list[ref[Any]] = []
        self.counts: Counter[str] = Counter()
        self.numbers = count()
        self.odds = {
            self.arrive: 15,
            self.admit: 30,
            self.compute: 40,
            self.finish: 3,
            self.fail: 2,
            self.give_up_waiting: 2,
            self.preempt: 6,
        }

    def operate(self) -> None:
        """One operation. The orders of some are carried out together with those of the next."""
        (operation,) = self.draw.choices(list(self.odds), list(self.odds.values()))
        operation()
        self.check_books()
        if self.draw.random() < 0.7:
            self.settle()

    def arrive(self) -> None:
        """A request for one to three answers; its prompt begins like others of its salt."""
        if len(self.waiting) > MOST_WAITING:
            return
        family, length = self.draw.randrange(6), self.draw.randint(1, CONTEXT_TOKENS)
        shared = [3 + (37 * family + 5 * i) % (NUM_TOKENS - 3) for i in range(length)]
        tail = [self.draw.randrange(3, NUM_TOKENS) for _ in range(self.draw.randint(0, 12))]
        number, salt = next(self.numbers), self.draw.choice([b"a", b"b"])
        num_choices = self.draw.choice([1, 1, 1, 2, 3])
        self.counts["forked"] += num_choices - 1
        prompt = (shared + tail)[:CONTEXT_TOKENS]
        choices = [_sequence(prompt, salt, number, index) for index in range(num_choices)]
        for choice in choices[1:]:
            choice.leader = choices[0]
        self.waiting += choices

    def admit(self) -> None:
        """Any of those that wait takes a seat where one is free."""
        if not self.waiting:
            return
        sequence = self.draw.choice(self.waiting)
        has_seat = len(self.running) < NUM_SLOTS
        assert self.runner.kv.admit(sequence) == has_seat
        if has_seat:
            self.waiting.remove(sequence)
            self.running.append(sequence)
            if sequence.num_computed:
                self.reused.add(sequence)

    def compute(self) -> None:
        """A part of what some of the running ones have to compute, in one step."""
        chosen = self.draw.sample(self.running, self.draw.randint(0, len(self.running)))
        chunks = []
        num_left = self.runner.step_tokens
        for sequence in chosen:
            num_uncomputed = sequence.num_uncomputed
            length = self.draw.choice([num_uncomputed, self.draw.randint(1, num_uncomputed)])
            length = min(length, num_left)
            num_left -= length
            if length:
                chunks.append(_chunk(sequence, length))
        self.step(*chunks)

    def step(self, *chunks: Chunk) -> None:
        """Compute; answers grow by what is sampled as long as they may."""
        self.count_orders()
        plan = StepPlan(chunks=chunks)
        for chunk, answer in zip(chunks, self.runner.execute(plan), strict=True):
            sequence = chunk.sequence
            sequence.num_computed += chunk.length
            if not chunk.samples:
                assert answer is None
                continue
            assert isinstance(answer, Sampled)
            self.answers[sequence] = answer
            sequence.token_ids.append(answer.token_id)
            num_tokens = len(sequence.token_ids)
            is_cut = not self.runner.kv.grow(sequence, num_tokens)
            if is_cut or sequence.num_output_tokens == sequence.max_tokens:
                self.counts["cut short"] += is_cut
                self.leave(sequence)

    def finish(self) -> None:
        """One ends, or is aborted, wherever it stands."""
        if self.running:
            self.leave(self.draw.choice(self.running))

    def fail(self) -> None:
        """One ends with an error: nothing of it is to be trusted."""
        if self.running:
            self.leave(self.draw.choice(self.running), reusable=False)

    def give_up_waiting(self) -> None:
        """One is aborted before it has a seat."""
        if self.waiting:
            sequence = self.waiting.pop(self.draw.randrange(len(self.waiting)))
            self.answers.pop(sequence, None)

    def preempt(self) -> None:
        """One goes back to those that wait."""
        if self.running:
            sequence = self.running.pop(self.draw.randrange(len(self.running)))
            self.runner.kv.release(sequence)
            sequence.num_computed = 0
            sequence.num_preemptions += 1
            self.waiting.append(sequence)
            self.counts["pre-empted"] += 1

    def leave(self, sequence: Sequence, *, reusable: bool = True) -> None:
        """Give the seat back. What was reused must have made no difference."""
        self.running.remove(sequence)
        self.runner.kv.release(sequence, reusable=reusable)
        answer = self.answers.pop(sequence, None)
        if sequence in self.reused and answer is not None:
            self.counts["reused"] += 1
            assert self.answer_afresh(sequence.token_ids[:-1]) == answer
        self.reused.discard(sequence)

    def answer_afresh(self, token_ids: list[int]) -> object:
        """What follows these tokens, computed at once."""
        sequence = _sequence(token_ids, b"", 0, 0)
        assert self.fresh.kv.admit(sequence)
        plan = StepPlan(chunks=(_chunk(sequence, len(token_ids)),))
        (answer,) = self.fresh.execute(plan)
        self.fresh.kv.release(sequence, reusable=False)
        return answer

    def count_orders(self) -> None:
        """What is about to be carried out."""
        for order in self.runner.kv._orders:
            if isinstance(order, Move):
                self.counts["copied"] += order.source != order.destination
            self.counts["saved"] += isinstance(order, Save)
            self.counts["loaded"] += isinstance(order, Load)

    def settle(self) -> None:
        """Carry out what was ordered; then every slot is as full as the books say."""
        self.step()
        for slot, num_tokens in self.held().items():
            assert self.num_cells(slot) == num_tokens, slot
        self.check_states()

    def held(self) -> dict[int, int]:
        """How many tokens each slot holds that is taken or remembers something."""
        kv = self.runner.kv
        remembered = {slot: len(memory.token_ids) for slot, memory in kv._memories.items()}
        taken = {seat.slot: seat.sequence.num_computed for seat in kv._seats.values()}
        return remembered | taken

    def num_cells(self, slot: int) -> int:
        """How many tokens llama.cpp says that a slot holds, from the first one on."""
        memory: Any = llama.llama_get_memory(self.runner._context)
        last: int = llama.llama_memory_seq_pos_max(memory, slot)
        assert llama.llama_memory_seq_pos_min(memory, slot) == min(last, 0)
        return last + 1

    def check_books(self) -> None:
        """Nothing is counted twice, and nothing more than there is."""
        kv = self.runner.kv
        assert kv.used_tokens == sum(sequence.num_computed for sequence in self.running)
        assert kv.used_tokens + kv.cached_tokens <= kv.total_tokens
        assert kv.saved_tokens <= kv._saved.room_tokens
        assert {slot: seat.slot for slot, seat in kv._seats.items()} == {
            sequence.kv.slot: sequence.kv.slot for sequence in self.running
        }
        assert len(kv._seats) == len(self.running)

    def check_states(self) -> None:
        """The bytes outside the slots are those of the saved states that are known, and no more."""
        holders: list[Any] = list(self.runner.kv._saved._cache.holders())
        assert sum(state.num_tokens for state in holders) == self.runner.kv.saved_tokens
        known = {id(state.data) for state in holders}
        self.states = [state for state in self.states if state() is not None]
        assert {id(state()) for state in self.states} <= known
        self.states = [ref(state.data) for state in holders]

    def end_all(self) -> None:
        """Nobody waits, and nobody runs."""
        self.waiting.clear()
        while self.running:
            self.leave(self.running[-1])
        self.settle()
        assert self.runner.kv.used_tokens == 0

    def forget_all(self) -> None:
        """Strangers take every slot, then nothing is worth its room."""
        kv = self.runner.kv
        strangers = [_sequence([3], b"%d" % number, number, 0) for number in range(NUM_SLOTS)]
        assert all(kv.admit(stranger) for stranger in strangers)
        self.step()
        assert [self.num_cells(slot) for slot in range(NUM_SLOTS)] == [0] * NUM_SLOTS
        for stranger in strangers:
            kv.release(stranger, reusable=False)
        kv._saved._make_room(kv._saved.room_tokens)
        assert kv.used_tokens == kv.cached_tokens == kv.saved_tokens == 0
        self.check_states()
        assert not self.states


def _sequence(token_ids: list[int], salt: bytes, number: int, index: int) -> Sequence:
    return Sequence(
        request_id=str(number),
        index=index,
        num_prompt_tokens=len(token_ids),
        token_ids=list(token_ids),
        max_tokens=12 if number % 4 else CONTEXT_TOKENS,
        sampling=EVERYTHING,
        seed=7,
        cache_salt=salt,
    )


def _chunk(sequence: Sequence, length: int) -> Chunk:
    begin = sequence.num_computed
    samples = begin + length == len(sequence.token_ids)
    return Chunk(sequence=sequence, start=begin, length=length, samples=samples)
