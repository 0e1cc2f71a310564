"""Who computes what in the next step: continuous batching over one token budget.

There are no phases. A step brings `num_computed` of as many sequences as fit up to
`len(token_ids)`: first the running ones, decodes before prompts, then waiting ones. A sequence
that no longer fits is pre-empted and recomputed later; the oldest running one never is, so there
is always one that ends. Pure bookkeeping: no clock, no tensor, no text.

Smaller `priority` goes first; within it, earlier arrival.
"""

from bisect import insort
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from typing import Final, TypeAlias

from appliance.generation import FinishReason
from engines.awaiting import awaits_another
from engines.pacing import PromptPace
from engines.prompt_shares import share_out
from engines.protocol import SchedulerStats
from engines.runner import Answer, Chunk, KvManager, OutOfKvError, RowError, Sampled, StepPlan
from engines.sequence import Sequence, SequenceState
from engines.speculation import Speculation

# How often others may be admitted past a waiting sequence that does not fit. Then all wait for it.
MAX_BYPASSES: Final = 16
# How many that do not fit are tried in one step: bounds the step's cost when thousands wait.
MAX_MISFITS_PER_STEP: Final = 8
# Admission leaves every running sequence room to grow by this much, so that one just admitted is
# not pre-empted by the next tokens of the others, recomputed, and pre-empted again.
GROWTH_TOKENS: Final = 16
Outcome: TypeAlias = tuple[Sequence, Sampled | RowError]


class Scheduler:
    """The waiting and the running sequences of one runner.

    `step_tokens` bounds a step; no more than `max_running` sequences run (and no more than a step
    has tokens, so that every stream moves in every step). `pace` bounds the prompt part of a step
    in which streams decode. With `speculation` steps that only decode may carry drafts.
    """

    def __init__(
        self,
        kv: KvManager,
        *,
        step_tokens: int,
        max_running: int,
        pace: PromptPace | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        self._kv = kv
        self._step_tokens = step_tokens
        self._max_running = min(max_running, step_tokens)
        self._pace = pace
        self._speculation = speculation
        self._waiting: list[Sequence] = []
        self._running: list[Sequence] = []
        self._by_request: dict[str, list[Sequence]] = {}
        self._has_preempted = False
        self._num_preemptions = 0
        self._num_steps = 0
        self._prefix_cache_queries = 0
        self._prefix_cache_hits = 0
        self._num_prompt_tokens = 0
        self._num_generation_tokens = 0
        self._num_drafted = 0
        self._num_accepted = 0

    @property
    def running(self) -> Seq[Sequence]:
        """The running sequences, those to be pre-empted last first."""
        return self._running

    @property
    def is_idle(self) -> bool:
        """Nothing runs and nothing waits."""
        return not self._running and not self._waiting

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        insort(self._waiting, sequence, key=_rank)
        self._by_request.setdefault(sequence.request_id, []).append(sequence)

    def abort(self, request_id: str) -> list[Sequence]:
        """Cancel what is left of a request, in whatever state; answers the sequences it ended."""
        ended = list(self._by_request.get(request_id, ()))
        for sequence in ended:
            self.finish(sequence, FinishReason.CANCELLED)
        return ended

    def finish(self, sequence: Sequence, reason: FinishReason) -> None:
        """End a sequence and take its place back; one that has ended stays as it ended.

        After an error nothing of it is kept for reuse: its keys and values are not to be trusted.
        """
        if sequence.state is SequenceState.FINISHED:
            return
        if sequence.state is SequenceState.RUNNING:
            self._running.remove(sequence)
            self._kv.release(sequence, reusable=reason is not FinishReason.ERROR)
        else:
            self._waiting.remove(sequence)
        sequence.state = SequenceState.FINISHED
        sequence.finish_reason = reason
        siblings = self._by_request[sequence.request_id]
        siblings.remove(sequence)
        if not siblings:
            del self._by_request[sequence.request_id]

    def plan(self, now: float) -> StepPlan | None:
        """The next step; None when there is nothing to compute. `now` stamps first admissions.

        Raises OutOfKvError when the oldest running sequence does not fit even alone.
        """
        decodes, prompts = self._continue_running()
        num_prompt_tokens = self._prompt_budget(len(decodes))
        if num_prompt_tokens and not (self._has_preempted and self._running):
            prompts += self._admit_waiting(now)
        self._has_preempted = False
        chunks = share_out(prompts, num_prompt_tokens)
        if self._speculation is not None and decodes and not chunks:
            decodes = self._speculation.add_drafts(decodes, self._step_tokens - len(decodes))
        chunks = decodes + chunks
        return StepPlan(chunks=tuple(chunks)) if chunks else None

    def commit(
        self, plan: StepPlan, answers: Seq[Answer], *, seconds: float = 0.0
    ) -> Iterator[Outcome]:
        """Take in what a step computed: appends the new tokens, answers who got what.

        Lazily: each token is appended when the one before it has been told, so that where one ends
        its sequence, those after it never were. A sequence with a RowError is still running; its
        owner decides how it ends. `seconds` is how long the step took, for the pace and for drafts.
        """
        self._num_steps += 1
        if self._pace is not None:
            self._pace.observe(plan, seconds)
        if self._speculation is not None:
            self._speculation.observe(plan, seconds)
        for chunk, answer in zip(plan.chunks, answers, strict=True):
            sequence = chunk.sequence
            sequence.num_computed = chunk.start + chunk.length
            if isinstance(answer, Sampled):  # told here: a generator a token takes 80 us at 256
                if sequence.state is SequenceState.RUNNING:
                    sequence.token_ids.append(answer.token_id)
                    self._num_generation_tokens += 1
                    yield sequence, answer
            elif isinstance(answer, RowError):
                yield sequence, answer
            elif answer is not None:
                self._num_drafted += len(chunk.drafts)
                yield from self._append(sequence, answer)

    def _append(self, sequence: Sequence, run: tuple[Sampled, ...]) -> Iterator[Outcome]:
        """All of a run but its last token were drafts, and are computed already."""
        for num_accepted, sampled in enumerate(run):
            if sequence.state is not SequenceState.RUNNING:
                return
            sequence.num_computed = len(sequence.token_ids)
            sequence.token_ids.append(sampled.token_id)
            self._num_generation_tokens += 1
            self._num_accepted += num_accepted > 0
            yield sequence, sampled

    def preempt_newest(self) -> Sequence | None:
        """Send the least important, then newest running sequence back to the waiting ones.

        Never the oldest: None when there is no other. The next plan admits nobody beside it.
        """
        if len(self._running) < 2:
            return None
        victim = self._running[-1]
        if victim is min(self._running, key=_arrival):
            victim = self._running[-2]
        self._running.remove(victim)
        self._kv.release(victim)
        victim.state = SequenceState.WAITING
        victim.num_computed = 0
        victim.num_preemptions += 1
        insort(self._waiting, victim, key=_rank)
        self._num_preemptions += 1
        self._has_preempted = True
        return victim

    def stats(self) -> SchedulerStats:
        """How things stand now, and the totals."""
        return SchedulerStats(
            num_running=len(self._running),
            num_waiting=len(self._waiting),
            kv_used_tokens=self._kv.used_tokens,
            kv_cached_tokens=self._kv.cached_tokens,
            kv_total_tokens=self._kv.total_tokens,
            num_preemptions=self._num_preemptions,
            num_steps=self._num_steps,
            prefix_cache_queries=self._prefix_cache_queries,
            prefix_cache_hits=self._prefix_cache_hits,
            prompt_tokens=self._num_prompt_tokens,
            generation_tokens=self._num_generation_tokens,
            num_drafted=self._num_drafted,
            num_accepted=self._num_accepted,
            kv_saved_tokens=self._kv.saved_tokens,
        )

    def _prompt_budget(self, num_decodes: int) -> int:
        left = self._step_tokens - num_decodes
        return min(left, self._pace.num_tokens) if num_decodes and self._pace else left

    def _continue_running(self) -> tuple[list[Chunk], list[Sequence]]:
        """Room for the running ones: their decodes, and those with a prompt still to compute."""
        grow = self._kv.grow
        decodes: list[Chunk] = []
        prompts: list[Sequence] = []
        for sequence in self._running.copy():
            if sequence.state is not SequenceState.RUNNING:
                continue
            num_tokens = len(sequence.token_ids)
            if not grow(sequence, num_tokens) and not self._make_room(sequence):
                continue
            start = sequence.num_computed
            if num_tokens - start > 1:
                prompts.append(sequence)
            else:
                decodes.append(Chunk(sequence=sequence, start=start, length=1, samples=True))
        if self._has_preempted:
            decodes = [c for c in decodes if c.sequence.state is SequenceState.RUNNING]
            prompts = [s for s in prompts if s.state is SequenceState.RUNNING]
        return decodes, prompts

    def _make_room(self, sequence: Sequence) -> bool:
        """Pre-empt others until `sequence` fits; False when its own turn to go came first."""
        while (victim := self.preempt_newest()) is not None:
            if victim is sequence:
                return False
            if self._kv.grow(sequence, len(sequence.token_ids)):
                return True
        raise OutOfKvError(f"{len(sequence.token_ids)} tokens do not fit even alone")

    def _admit_waiting(self, now: float) -> list[Sequence]:
        """Admit who fits, in their order; answers who was."""
        admitted: list[Sequence] = []
        passed_over: list[Sequence] = []
        position = 0
        while position < len(self._waiting) and len(self._running) < self._max_running:
            sequence = self._waiting[position]
            if awaits_another(sequence, self._running):
                position += 1
            elif self._admit(sequence, now):
                del self._waiting[position]
                admitted.append(sequence)
                for other in passed_over:
                    other.num_bypasses += 1
            elif _holds_the_line(sequence) or len(passed_over) == MAX_MISFITS_PER_STEP:
                break
            else:
                passed_over.append(sequence)
                position += 1
        return admitted

    def _admit(self, sequence: Sequence, now: float) -> bool:
        if not self._kv.admit(sequence, spare_tokens=GROWTH_TOKENS * len(self._running)):
            return False
        sequence.state = SequenceState.RUNNING
        insort(self._running, sequence, key=_rank)
        if sequence.num_preemptions == 0:
            sequence.scheduled_at = now
            self._prefix_cache_queries += sequence.num_prompt_tokens
            self._prefix_cache_hits += sequence.num_cached
            self._num_prompt_tokens += sequence.num_prompt_tokens if not sequence.leader else 0
        return True


def _rank(sequence: Sequence) -> tuple[int, float, int]:
    return sequence.priority, sequence.arrived_at, sequence.index


def _arrival(sequence: Sequence) -> tuple[float, int]:
    return sequence.arrived_at, sequence.index


def _holds_the_line(sequence: Sequence) -> bool:
    """It has been passed over often enough: nobody behind it is admitted before it."""
    return sequence.num_bypasses >= MAX_BYPASSES
