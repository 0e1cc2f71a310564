"""The scheduler, driven over the echo engine's real block pool."""

from collections.abc import Iterator
from itertools import count

import pytest

from appliance.generation import FinishReason, SamplingParams
from engines.echo.kv_blocks import EchoKv
from engines.pacing import PromptPace
from engines.runner import Chunk, OutOfKvError, RowError, Sampled, StepPlan
from engines.scheduler import GROWTH_TOKENS, MAX_BYPASSES, Scheduler
from engines.sequence import Sequence, SequenceState

_arrivals: Iterator[int] = count(1)


def make_sequence(num_tokens: int, *, priority: int = 0, **fields: object) -> Sequence:
    """A sequence whose prompt shares no prefix with any other's, unless `token_ids` are given."""
    arrival = next(_arrivals)
    values: dict[str, object] = {
        "request_id": f"request-{arrival}",
        "index": 0,
        "num_prompt_tokens": num_tokens,
        "token_ids": [1000 + arrival, *range(num_tokens - 1)],
        "max_tokens": 1000,
        "sampling": SamplingParams(),
        "seed": 0,
        "priority": priority,
        "arrived_at": float(arrival),
    }
    return Sequence(**(values | fields))  # type: ignore[arg-type]


def make_scheduler(
    *,
    pool: int = 10_000,
    step_tokens: int = 64,
    max_running: int = 8,
    pace: PromptPace | None = None,
) -> tuple[Scheduler, EchoKv]:
    kv = EchoKv(pool, block_tokens=1)
    return Scheduler(kv, step_tokens=step_tokens, max_running=max_running, pace=pace), kv


def step(scheduler: Scheduler) -> StepPlan:
    plan = scheduler.plan(1.0)
    assert plan is not None
    list(scheduler.commit(plan, [Sampled(token_id=7) if c.samples else None for c in plan.chunks]))
    return plan


def lengths(plan: StepPlan) -> dict[str, int]:
    return {chunk.sequence.request_id: chunk.length for chunk in plan.chunks}


def test_prompts_with_one_beginning_wait_for_the_first_and_hold_nobody_up() -> None:
    scheduler, _ = make_scheduler(step_tokens=64)
    beginning = [5] * 200
    first, second, third = (
        make_sequence(201, token_ids=[*beginning, number]) for number in range(3)
    )
    other = make_sequence(20)
    for sequence in (first, second, third, other):
        scheduler.add(sequence)
    running = [first.request_id, other.request_id]
    assert [sorted(lengths(step(scheduler))) for _ in range(2)] == [sorted(running)] * 2
    assert (second.num_bypasses, third.num_bypasses) == (0, 0)
    while second.state is SequenceState.WAITING:
        step(scheduler)
    assert first.num_computed >= 200
    assert third.state is SequenceState.RUNNING


def test_who_waited_for_another_goes_on_alone_when_that_one_ends() -> None:
    scheduler, _ = make_scheduler(step_tokens=64)
    first, second = (make_sequence(200, token_ids=[5] * 200) for _ in range(2))
    for sequence in (first, second):
        scheduler.add(sequence)
    step(scheduler)
    assert second.awaited is first
    scheduler.abort(first.request_id)
    assert lengths(step(scheduler)) == {second.request_id: 64}


@pytest.mark.parametrize(
    "fields",
    [{"cache_salt": b"another"}, {"token_ids": [*[5] * 63, *[6] * 137]}],
    ids=["another tenant's", "a short one"],
)
def test_such_a_beginning_is_not_waited_for(fields: dict[str, object]) -> None:
    scheduler, _ = make_scheduler(step_tokens=64)
    for values in ({}, fields):
        scheduler.add(make_sequence(200, **({"token_ids": [5] * 200} | values)))
    step(scheduler)
    assert scheduler.stats().num_running == 2


def test_nothing_to_do_is_no_plan() -> None:
    scheduler, _ = make_scheduler()
    assert scheduler.plan(1.0) is None
    assert scheduler.is_idle


def test_a_prompt_is_computed_in_chunks_of_the_budget_and_then_sampled() -> None:
    scheduler, _ = make_scheduler(step_tokens=64)
    sequence = make_sequence(150)
    scheduler.add(sequence)
    assert [step(scheduler).chunks[0].samples for _ in range(3)] == [False, False, True]
    assert sequence.num_computed == 150
    assert sequence.num_output_tokens == 1
    assert step(scheduler).num_tokens == 1


def test_decodes_come_before_prompt_chunks_and_keep_their_place() -> None:
    """llama.cpp#29175: a long prompt arriving during streams must not stall them."""
    pace = PromptPace(1.0)
    fifty_ms_a_token = Chunk(sequence=make_sequence(40), start=0, length=40, samples=True)
    pace.observe(StepPlan(chunks=(fifty_ms_a_token,)), 2.0)
    scheduler, _ = make_scheduler(step_tokens=64, pace=pace)
    streams = [make_sequence(4) for _ in range(3)]
    for stream in streams:
        scheduler.add(stream)
    step(scheduler)
    long_one = make_sequence(4000)
    scheduler.add(long_one)
    for _ in range(20):
        plan = step(scheduler)
        assert [chunk.sequence for chunk in plan.chunks[:3]] == streams
        assert plan.chunks[3].sequence is long_one
        assert plan.chunks[3].length == 20


def test_a_short_prompt_is_computed_beside_a_long_one() -> None:
    scheduler, _ = make_scheduler(step_tokens=64)
    long_one, short_one = make_sequence(4000), make_sequence(10)
    scheduler.add(long_one)
    scheduler.add(short_one)
    plan = step(scheduler)
    assert lengths(plan) == {long_one.request_id: 54, short_one.request_id: 10}
    assert short_one.num_output_tokens == 1


def test_a_step_never_computes_more_than_its_tokens() -> None:
    scheduler, _ = make_scheduler(step_tokens=10, max_running=100)
    for _ in range(30):
        scheduler.add(make_sequence(7))
    for _ in range(40):
        assert step(scheduler).num_tokens <= 10
    assert scheduler.stats().num_running == 10


def test_the_more_important_and_then_the_older_is_admitted_first() -> None:
    scheduler, _ = make_scheduler(max_running=1)
    plain, later, urgent = make_sequence(3), make_sequence(3), make_sequence(3, priority=-1)
    for sequence in (later, plain, urgent):
        scheduler.add(sequence)
    order = []
    for _ in range(3):
        (chunk,) = step(scheduler).chunks
        order.append(chunk.sequence)
        scheduler.finish(chunk.sequence, FinishReason.STOP)
    assert order == [urgent, plain, later]


def test_a_large_request_at_the_head_is_passed_by_small_ones_but_not_for_ever() -> None:
    """vllm#31731: one huge request at the queue head blocked small ones that fit."""
    scheduler, _ = make_scheduler(pool=200, max_running=4)
    running = make_sequence(100)
    scheduler.add(running)
    for _ in range(4):
        step(scheduler)
    huge = make_sequence(150)
    scheduler.add(huge)
    small = [make_sequence(3) for _ in range(MAX_BYPASSES + 5)]
    for sequence in small:
        scheduler.add(sequence)
    for _ in range(40):
        step(scheduler)
        for sequence in tuple(scheduler.running):
            if sequence is not running:
                scheduler.finish(sequence, FinishReason.STOP)
        assert huge.state is SequenceState.WAITING
    num_passed = sum(s.state is SequenceState.FINISHED for s in small)
    assert MAX_BYPASSES <= num_passed < MAX_BYPASSES + 4
    scheduler.finish(running, FinishReason.STOP)
    step(scheduler)
    assert huge.state is SequenceState.RUNNING


def test_a_full_pool_preempts_the_newest_and_never_the_oldest() -> None:
    """vllm#15996: under KV pressure the oldest goes on, everyone ends, recomputes are bounded."""
    scheduler, kv = make_scheduler(pool=240, step_tokens=64, max_running=8)
    sequences = [make_sequence(30, max_tokens=100) for _ in range(8)]
    for sequence in sequences:
        scheduler.add(sequence)
    while not scheduler.is_idle:
        oldest = min(scheduler.running, key=lambda s: s.arrived_at, default=None)
        step(scheduler)
        if oldest is not None:
            assert oldest.state is SequenceState.RUNNING
        for sequence in tuple(scheduler.running):
            if sequence.num_output_tokens >= sequence.max_tokens:
                scheduler.finish(sequence, FinishReason.LENGTH)
    assert [s.num_output_tokens for s in sequences] == [100] * 8
    assert sequences[0].num_preemptions == 0
    assert scheduler.stats().num_preemptions > 0
    # Each return leaves the others room to grow by GROWTH_TOKENS before the next pre-emption.
    assert max(s.num_preemptions for s in sequences) <= 8 * 100 / GROWTH_TOKENS
    assert kv.used_tokens == 0


def test_the_least_important_is_preempted_before_the_newest() -> None:
    scheduler, _ = make_scheduler()
    oldest, unimportant, newest = (
        make_sequence(3),
        make_sequence(3, priority=5),
        make_sequence(3),
    )
    for sequence in (oldest, unimportant, newest):
        scheduler.add(sequence)
    step(scheduler)
    assert scheduler.preempt_newest() is unimportant
    assert scheduler.preempt_newest() is newest
    assert scheduler.preempt_newest() is None


def test_the_oldest_is_spared_even_when_it_is_the_least_important() -> None:
    scheduler, _ = make_scheduler()
    oldest, newer = make_sequence(3, priority=5), make_sequence(3)
    scheduler.add(oldest)
    scheduler.add(newer)
    step(scheduler)
    assert scheduler.preempt_newest() is newer


def test_a_step_that_preempted_admits_nobody() -> None:
    scheduler, _ = make_scheduler()
    scheduler.add(make_sequence(3))
    scheduler.add(make_sequence(3))
    step(scheduler)
    victim = scheduler.preempt_newest()
    assert len(step(scheduler).chunks) == 1
    assert victim in [chunk.sequence for chunk in step(scheduler).chunks]


def test_a_preempted_sequence_finds_what_it_had_computed() -> None:
    scheduler, _ = make_scheduler()
    for _ in range(2):
        scheduler.add(make_sequence(40))
    for _ in range(4):
        step(scheduler)
    victim = scheduler.preempt_newest()
    assert victim is not None
    num_known = len(victim.token_ids)
    step(scheduler)
    plan = step(scheduler)
    (chunk,) = [chunk for chunk in plan.chunks if chunk.sequence is victim]
    assert (chunk.start, chunk.length) == (num_known - 1, 1)
    assert victim.num_cached == 0


def test_what_does_not_fit_even_alone_is_out_of_kv() -> None:
    scheduler, _ = make_scheduler(pool=32)
    scheduler.add(make_sequence(32))
    step(scheduler)
    with pytest.raises(OutOfKvError):
        scheduler.plan(1.0)


def test_choices_of_one_prompt_wait_for_the_first_and_share_its_prompt() -> None:
    """vllm#10852: n=4 must not compute the prompt four times."""
    scheduler, _ = make_scheduler(step_tokens=64)
    leader = make_sequence(100, request_id="n")
    followers = [
        make_sequence(
            100, request_id="n", index=i, token_ids=leader.token_ids.copy(), leader=leader
        )
        for i in (1, 2, 3)
    ]
    for sequence in (leader, *followers):
        scheduler.add(sequence)
    assert lengths(step(scheduler)) == {"n": 64}
    step(scheduler)
    assert leader.num_output_tokens == 1
    assert step(scheduler).num_tokens == 4
    assert [s.num_cached for s in followers] == [99, 99, 99]
    assert scheduler.stats().prompt_tokens == 100


def test_choices_of_an_ended_first_one_do_not_wait_for_it() -> None:
    scheduler, _ = make_scheduler()
    leader = make_sequence(10, request_id="n")
    follower = make_sequence(10, request_id="n", index=1, leader=leader)
    scheduler.add(leader)
    scheduler.add(follower)
    scheduler.finish(leader, FinishReason.ERROR)
    assert step(scheduler).chunks[0].sequence is follower


def test_abort_ends_a_request_in_whatever_state_and_frees_its_place() -> None:
    """llama.cpp#24496: work for a client that left went on."""
    scheduler, kv = make_scheduler(step_tokens=64, max_running=2)
    decoding, prefilling, queued = make_sequence(3), make_sequence(500), make_sequence(5)
    for sequence in (decoding, prefilling, queued):
        scheduler.add(sequence)
    step(scheduler)
    for sequence in (queued, prefilling, decoding):
        assert scheduler.abort(sequence.request_id) == [sequence]
        assert sequence.finish_reason is FinishReason.CANCELLED
    assert scheduler.abort(decoding.request_id) == []
    assert scheduler.plan(1.0) is None
    assert kv.used_tokens == 0


def test_a_sequence_that_has_ended_stays_as_it_ended() -> None:
    scheduler, _ = make_scheduler()
    sequence = make_sequence(3)
    scheduler.add(sequence)
    scheduler.finish(sequence, FinishReason.STOP)
    scheduler.finish(sequence, FinishReason.CANCELLED)
    assert sequence.finish_reason is FinishReason.STOP


def test_a_failed_row_is_reported_and_nothing_of_it_is_cached() -> None:
    """sglang#33187: one row of NaN must not touch the others, nor be reused."""
    scheduler, kv = make_scheduler()
    sound, broken = make_sequence(3), make_sequence(3)
    scheduler.add(sound)
    scheduler.add(broken)
    plan = scheduler.plan(1.0)
    assert plan is not None
    error = RowError(code="engine.row_failed", message="not a number")
    outcomes = list(scheduler.commit(plan, [Sampled(token_id=7), error]))
    assert outcomes == [(sound, Sampled(token_id=7)), (broken, error)]
    scheduler.finish(broken, FinishReason.ERROR)
    assert kv.cached_tokens == 0
    assert sound.num_output_tokens == 1


def test_only_the_same_salt_finds_a_prefix() -> None:
    """vllm#16016: a tenant must not learn from timing what another tenant asked."""
    scheduler, _ = make_scheduler()
    token_ids = list(range(50))
    cached = {}
    for name, salt in (("first", b"a"), ("again", b"a"), ("other", b"b")):
        sequence = make_sequence(50, token_ids=token_ids.copy(), cache_salt=salt)
        scheduler.add(sequence)
        step(scheduler)
        scheduler.finish(sequence, FinishReason.STOP)
        cached[name] = sequence.num_cached
    assert cached == {"first": 0, "again": 49, "other": 0}
    stats = scheduler.stats()
    assert (stats.prefix_cache_queries, stats.prefix_cache_hits) == (150, 49)
