"""Any mix of arrivals, aborts, endings and pre-emptions: nothing leaks, nothing is lost.

A hypothesis state machine drives the scheduler over the echo engine and keeps its own record of
what has truly been computed, so that a prefix taken from the cache is checked against it.
"""

from collections import defaultdict

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from appliance.generation import FinishReason, SamplingParams
from engines.echo.kv_blocks import EchoKv
from engines.echo.runner import EchoRunner, find_answer
from engines.echo.tokenizer import TURN_END, marker_id
from engines.protocol import ModelFacts
from engines.runner import Chunk, Sampled, StepPlan
from engines.scheduler import Scheduler
from engines.sequence import Sequence, SequenceState
from engines.speculation import Speculation

CONTEXT_TOKENS = 48
TURN_END_ID = marker_id(TURN_END)

prompts = st.lists(st.sampled_from([97, 98]), min_size=1, max_size=CONTEXT_TOKENS - 1)
salts = st.sampled_from([b"tenant-a", b"tenant-b"])


class SchedulerStates(RuleBasedStateMachine):
    """Requests come and go at will; one step is one plan, execute and commit.

    sglang#6888, sglang#35270: a leak found when idle ended the server. Here nothing leaks, so that
    nothing has to look for it.
    """

    @initialize(
        num_places=st.integers(1, 2),
        block_tokens=st.sampled_from([1, 4, 16]),
        step_tokens=st.integers(1, 40),
        max_running=st.integers(1, 6),
        has_priorities=st.booleans(),
        speculates=st.booleans(),
    )
    def start(
        self,
        num_places: int,
        block_tokens: int,
        step_tokens: int,
        max_running: int,
        has_priorities: bool,
        speculates: bool,
    ) -> None:
        self.kv = EchoKv(num_places * CONTEXT_TOKENS, block_tokens)
        self.scheduler = Scheduler(
            self.kv,
            step_tokens=step_tokens,
            max_running=max_running,
            speculation=Speculation(self.kv) if speculates else None,
        )
        facts = ModelFacts(
            model="echo",
            runner="echo",
            context_tokens=CONTEXT_TOKENS,
            vocabulary_size=300,
            num_slots=max_running,
        )
        self.runner = EchoRunner(facts, self.kv, step_tokens)
        self.step_tokens = step_tokens
        self.has_priorities = has_priorities
        self.sequences: list[Sequence] = []
        self.computed: dict[bytes, set[tuple[int, ...]]] = defaultdict(set)

    @rule(
        token_ids=prompts,
        n=st.integers(1, 3),
        max_tokens=st.integers(1, CONTEXT_TOKENS),
        salt=salts,
        priority=st.integers(-1, 1),
    )
    def arrive(
        self, token_ids: list[int], n: int, max_tokens: int, salt: bytes, priority: int
    ) -> None:
        arrival = len(self.sequences) + 1
        leader = None
        for index in range(n):
            sequence = Sequence(
                request_id=str(arrival),
                index=index,
                num_prompt_tokens=len(token_ids),
                token_ids=token_ids.copy(),
                max_tokens=min(max_tokens, CONTEXT_TOKENS - len(token_ids)),
                sampling=SamplingParams(),
                seed=index,
                cache_salt=salt,
                priority=priority if self.has_priorities else 0,
                arrived_at=float(arrival),
                leader=leader,
            )
            leader = leader or sequence
            self.sequences.append(sequence)
            self.scheduler.add(sequence)

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(self.sequences))
        live = [s for s in self.sequences if s.request_id == sequence.request_id]
        live = [s for s in live if s.state is not SequenceState.FINISHED]
        assert self.scheduler.abort(sequence.request_id) == live
        assert all(s.finish_reason is FinishReason.CANCELLED for s in live)

    @rule()
    def run_out_of_memory(self) -> None:
        """The device said no to a step, as llama.cpp may."""
        oldest = self.oldest_running()
        assert self.scheduler.preempt_newest() is not oldest or oldest is None

    @rule(num_steps=st.integers(1, 20))
    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            self.step()

    def step(self) -> None:
        oldest = self.oldest_running()
        plan = self.scheduler.plan(1.0)
        if plan is None:
            assert self.scheduler.is_idle
            return
        self.check_plan(plan, oldest)
        for sequence, result in self.scheduler.commit(plan, self.runner.execute(plan), seconds=1.0):
            assert isinstance(result, Sampled)
            if result.token_id == TURN_END_ID:
                self.scheduler.finish(sequence, FinishReason.STOP)
            elif sequence.num_output_tokens == sequence.max_tokens:
                self.scheduler.finish(sequence, FinishReason.LENGTH)

    def check_plan(self, plan: StepPlan, oldest: Sequence | None) -> None:
        assert 0 < plan.num_tokens <= self.step_tokens
        planned = [chunk.sequence for chunk in plan.chunks]
        assert len(set(map(id, planned))) == len(planned)
        if oldest is not None:
            assert oldest.state is SequenceState.RUNNING
            assert oldest in planned or self.has_priorities
        for chunk in plan.chunks:
            self.check_chunk(chunk)

    def check_chunk(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        end = chunk.start + chunk.length
        assert sequence.state is SequenceState.RUNNING
        assert chunk.start == sequence.num_computed
        assert chunk.length >= 1
        assert chunk.samples == (end == len(sequence.token_ids))
        truth = self.computed[sequence.cache_salt]
        if chunk.start:
            assert tuple(sequence.token_ids[: chunk.start]) in truth
        token_ids = [*sequence.token_ids[:end], *chunk.drafts]
        truth.update(tuple(token_ids[:length]) for length in range(chunk.start, len(token_ids) + 1))

    def oldest_running(self) -> Sequence | None:
        return min(self.scheduler.running, key=lambda s: (s.arrived_at, s.index), default=None)

    @invariant()
    def counts_are_exact(self) -> None:
        if not hasattr(self, "kv"):
            return
        stats = self.scheduler.stats()
        states = [sequence.state for sequence in self.sequences]
        assert stats.num_running == states.count(SequenceState.RUNNING)
        assert stats.num_waiting == states.count(SequenceState.WAITING)
        held = [s for s in self.sequences if s.kv is not None]
        assert all(sequence.state is SequenceState.RUNNING for sequence in held)
        assert stats.kv_used_tokens >= sum(s.num_computed for s in held)
        assert stats.kv_used_tokens + stats.kv_cached_tokens <= stats.kv_total_tokens
        assert stats.prefix_cache_hits <= stats.prefix_cache_queries

    def teardown(self) -> None:
        if not hasattr(self, "kv"):
            return
        for _ in range(10_000):
            if self.scheduler.is_idle:
                break
            self.step()
        assert self.scheduler.is_idle
        assert self.kv.used_tokens == 0
        for sequence in self.sequences:
            self.check_ending(sequence)

    def check_ending(self, sequence: Sequence) -> None:
        """Whatever happened on the way, the text is the one of a run alone."""
        answer = find_answer(sequence.token_ids[: sequence.num_prompt_tokens])
        told = sequence.token_ids[sequence.num_prompt_tokens :]
        assert told == [*answer, TURN_END_ID][: len(told)]
        if sequence.finish_reason is FinishReason.STOP:
            assert told[-1] == TURN_END_ID
        elif sequence.finish_reason is FinishReason.LENGTH:
            assert len(told) == sequence.max_tokens
        else:
            assert sequence.finish_reason is FinishReason.CANCELLED


SchedulerStates.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestSchedulerStates = SchedulerStates.TestCase
