"""Ten thousand random operations on the blocks, under the real scheduler and with a memory that
knows what was written where: nothing leaks, and no sequence ever reads what is not its own.
"""

from collections import defaultdict
from typing import TypeAlias

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from appliance.generation import FinishReason, SamplingParams
from engines.pytorch.block_pool import Block
from engines.pytorch.block_saves import Save
from engines.pytorch.kv_blocks import KvBlocks
from engines.runner import Chunk, RowError, Sampled, StepPlan
from engines.scheduler import Scheduler
from engines.sequence import Sequence, SequenceState
from engines.speculation import Speculation
from engines.verifying import verify

BLOCK = 4
CONTEXT_TOKENS = 40
STEP_TOKENS = 24
FAILED = RowError(code="engine.row_not_finite", message="x")

# What a slot of a block holds: the salt and the tokens up to its own.
Path: TypeAlias = tuple[bytes, tuple[int, ...]]

prompts = st.lists(st.integers(1, 3), min_size=1, max_size=28)
salts = st.sampled_from([b"", b"a"])


def next_token(token_ids: list[int]) -> int:
    """What the model of this file says: it depends on all tokens."""
    return 1 + hash(tuple(token_ids)) % 3


class Memory:
    """Runs steps. Reads everything that attention would read, and checks that it is right."""

    def __init__(self, kv: KvBlocks) -> None:
        self.kv = kv
        self.blocks: dict[int, list[Path | None]] = defaultdict(lambda: [None] * BLOCK)
        self.places: dict[int, list[Path | None]] = {}
        self.fails: set[str] = set()

    def execute(self, plan: StepPlan) -> list[Sampled | tuple[Sampled, ...] | RowError | None]:
        for copy in self.kv.take_copies():
            if isinstance(copy, Save):
                self.places[copy.place] = self.blocks[copy.block].copy()
            else:
                self.blocks[copy.block] = self.places[copy.place].copy()
        for chunk in plan.chunks:
            self._write(chunk)
        for chunk in plan.chunks:
            self._read(chunk)
        return [self._answer(chunk) for chunk in plan.chunks]

    def _write(self, chunk: Chunk) -> None:
        token_ids = _tokens(chunk)
        for position in range(chunk.start, len(token_ids)):
            block, offset = self._slot(chunk.sequence, position)
            path = (chunk.sequence.cache_salt, tuple(token_ids[: position + 1]))
            self.blocks[block][offset] = path

    def _read(self, chunk: Chunk) -> None:
        token_ids = _tokens(chunk)
        for position in range(len(token_ids)):
            block, offset = self._slot(chunk.sequence, position)
            expected = (chunk.sequence.cache_salt, tuple(token_ids[: position + 1]))
            assert self.blocks[block][offset] == expected

    def _slot(self, sequence: Sequence, position: int) -> tuple[int, int]:
        return int(self.kv.tables[sequence.kv.row, position // BLOCK]), position % BLOCK

    def _answer(self, chunk: Chunk) -> Sampled | tuple[Sampled, ...] | RowError | None:
        if chunk.sequence.request_id in self.fails:
            return FAILED
        if chunk.drafts:
            return verify(chunk, range(1 + len(chunk.drafts)), lambda sequence, _: _say(sequence))
        return _say(chunk.sequence) if chunk.samples else None


def _tokens(chunk: Chunk) -> list[int]:
    return [*chunk.sequence.token_ids[: chunk.start + chunk.length], *chunk.drafts]


def _say(sequence: Sequence) -> Sampled:
    return Sampled(token_id=next_token(sequence.token_ids))


class Guesses(Speculation):
    """Drafts two tokens that are right and one that is not, where there is room."""

    def __init__(self, kv: KvBlocks) -> None:
        super().__init__(kv)
        self._blocks = kv

    def add_drafts(self, decodes: list[Chunk], num_tokens: int) -> list[Chunk]:
        drafted = []
        for chunk in decodes:
            token_ids = chunk.sequence.token_ids.copy()
            while len(token_ids) < len(chunk.sequence.token_ids) + 2:
                token_ids.append(next_token(token_ids))
            drafts = (*token_ids[len(chunk.sequence.token_ids) :], 4)
            fits = len(token_ids) < CONTEXT_TOKENS and len(drafts) <= num_tokens
            if fits and self._blocks.grow(chunk.sequence, len(token_ids) + 1):
                num_tokens -= len(drafts)
                chunk = replace(chunk, drafts=drafts)  # noqa: PLW2901
            drafted.append(chunk)
        return drafted


class BlockStates(RuleBasedStateMachine):
    """Requests come, are aborted, fail, are pre-empted and guessed for; no block is lost."""

    @initialize(
        num_blocks=st.integers(CONTEXT_TOKENS // BLOCK, 24),
        num_places=st.sampled_from([0, 3, 40]),
        speculates=st.booleans(),
    )
    def start(self, num_blocks: int, num_places: int, speculates: bool) -> None:
        self.kv = KvBlocks(
            num_blocks,
            num_slots=6,
            context_tokens=CONTEXT_TOKENS,
            block_tokens=BLOCK,
            num_places=num_places,
        )
        self.memory = Memory(self.kv)
        self.scheduler = Scheduler(
            self.kv,
            step_tokens=STEP_TOKENS,
            max_running=6,
            speculation=Guesses(self.kv) if speculates else None,
        )
        self.sequences: list[Sequence] = []

    @rule(
        token_ids=prompts,
        n=st.integers(1, 3),
        max_tokens=st.integers(1, CONTEXT_TOKENS),
        salt=salts,
    )
    def arrive(self, token_ids: list[int], n: int, max_tokens: int, salt: bytes) -> None:
        number = len(self.sequences)
        leader = None
        for index in range(n):
            sequence = Sequence(
                request_id=str(number),
                index=index,
                num_prompt_tokens=len(token_ids),
                token_ids=token_ids.copy(),
                max_tokens=min(max_tokens, CONTEXT_TOKENS - len(token_ids)),
                sampling=SamplingParams(),
                seed=index,
                cache_salt=salt,
                arrived_at=float(number),
                leader=leader,
            )
            leader = leader or sequence
            self.sequences.append(sequence)
            self.scheduler.add(sequence)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        self.scheduler.abort(data.draw(st.sampled_from(self.sequences)).request_id)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.memory.fails = {data.draw(st.sampled_from(self.sequences)).request_id}
        self.step()
        self.memory.fails = set()

    @rule()
    def preempt(self) -> None:
        self.scheduler.preempt_newest()

    @rule(num_steps=st.integers(1, 12))
    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.step()

    def step(self) -> None:
        plan = self.scheduler.plan(1.0)
        if plan is None:
            assert self.scheduler.is_idle
            return
        for sequence, result in self.scheduler.commit(plan, self.memory.execute(plan), seconds=1.0):
            if isinstance(result, RowError):
                self.scheduler.finish(sequence, FinishReason.ERROR)
            elif sequence.num_output_tokens == sequence.max_tokens:
                self.scheduler.finish(sequence, FinishReason.LENGTH)

    @invariant()
    def every_block_is_accounted_for(self) -> None:
        if not hasattr(self, "kv"):
            return
        pool = self.kv._pool
        free = _free_blocks(pool._list)
        tables = [s.kv for s in self.sequences if s.kv is not None]
        owners: dict[Block, int] = defaultdict(int)
        for table in tables:
            assert len({block.index for block in table.blocks}) == len(table.blocks)
            for block in table.blocks:
                owners[block] += 1
        assert all(block.num_owners == count for block, count in owners.items())
        assert all(block.num_owners == 0 for block in free)
        assert not owners.keys() & set(free)
        assert len(free) == pool.num_free
        assert len(owners) + len(free) == pool.num_blocks
        assert pool.num_cached == sum(bool(block.digest) for block in free)
        assert all(block.digest == digest for digest, block in pool._known.items())
        rows = [table.row for table in tables] + self.kv._free_rows
        assert sorted(rows) == list(range(6))
        running = [s for s in self.sequences if s.state is SequenceState.RUNNING]
        assert [s for s in self.sequences if s.kv is not None] == running

    @invariant()
    def a_sequence_wastes_less_than_a_block_and_its_guesses(self) -> None:
        for sequence in getattr(self, "sequences", ()):
            if sequence.kv is not None:
                num_wanted = len(sequence.token_ids) + 3
                assert len(sequence.kv.blocks) <= -(-num_wanted // BLOCK)

    def teardown(self) -> None:
        if not hasattr(self, "kv"):
            return
        for _ in range(10_000):
            if self.scheduler.is_idle:
                break
            self.step()
        assert self.scheduler.is_idle
        assert self.kv.used_tokens == 0
        self.every_block_is_accounted_for()
        for sequence in self.sequences:
            told = sequence.token_ids[: sequence.num_prompt_tokens]
            while len(told) < len(sequence.token_ids):
                told.append(next_token(told))
            assert told == sequence.token_ids


def _free_blocks(ends: Block) -> list[Block]:
    free = []
    block = ends.after
    while block is not ends:
        assert block.after.before is block
        free.append(block)
        block = block.after
    return free


BlockStates.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=100,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestBlockStates = BlockStates.TestCase
