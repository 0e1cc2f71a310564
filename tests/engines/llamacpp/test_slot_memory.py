"""Prefixes that leave their slot come back from the host's memory exactly as they were."""

from collections.abc import Callable

import pytest

from appliance.generation import SamplingParams
from engines.llamacpp.kv_cells import Load, Move, Order, Save
from engines.llamacpp.runner import LlamaRunner
from engines.llamacpp.saved_prefixes import SavedState
from engines.runner import Chunk, Sampled, StepPlan
from engines.sequence import Sequence

pytestmark = pytest.mark.model

PREFIX_BYTES = 16 * 1024 * 1024
NUM_SHARED = 60
EVERYTHING = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=20)


def make_sequence(prompt: list[int], salt: bytes = b"a") -> Sequence:
    return Sequence(
        request_id="r",
        index=0,
        num_prompt_tokens=len(prompt),
        token_ids=list(prompt),
        max_tokens=1,
        sampling=EVERYTHING,
        seed=7,
        cache_salt=salt,
    )


def prompt_of(topic: int, question: int) -> list[int]:
    return [1000 + topic + 7 * i for i in range(NUM_SHARED)] + [3000 + question] * 4


def compute(runner: LlamaRunner, sequence: Sequence, length: int) -> Sampled:
    """One step of a sequence that is seated."""
    start = sequence.num_computed
    samples = start + length == len(sequence.token_ids)
    chunk = Chunk(sequence=sequence, start=start, length=length, samples=samples)
    (result,) = runner.execute(StepPlan(chunks=(chunk,)))
    sequence.num_computed += length
    return result if isinstance(result, Sampled) else Sampled(token_id=-1)


def ask(runner: LlamaRunner, prompt: list[int], salt: bytes = b"a") -> tuple[int, Sampled]:
    """How much of a prompt was known, and what follows it; its last four tokens come in a step."""
    sequence = make_sequence(prompt, salt)
    assert runner.kv.admit(sequence)
    if sequence.num_computed < len(prompt) - 4:
        compute(runner, sequence, len(prompt) - 4 - sequence.num_computed)
    answer = compute(runner, sequence, len(prompt) - sequence.num_computed)
    runner.kv.release(sequence)
    return sequence.num_cached, answer


def test_a_prefix_that_was_saved_gives_logits_equal_to_the_last_bit(
    start_runner: Callable[..., LlamaRunner],
) -> None:
    runner = start_runner(num_slots=1, context_tokens=256, prefix_bytes=PREFIX_BYTES)
    topics = range(5)
    uncached = [ask(runner, prompt_of(topic, 1), salt=b"%d" % topic) for topic in topics]
    assert [num_cached for num_cached, _ in uncached] == [0] * 5
    for topic in topics:
        ask(runner, prompt_of(topic, 0), salt=b"shared")
    restored = [ask(runner, prompt_of(topic, 1), salt=b"shared") for topic in topics]
    assert [num_cached for num_cached, _ in restored] == [NUM_SHARED] * 5
    assert [answer for _, answer in restored] == [answer for _, answer in uncached]


@pytest.mark.parametrize("context_tokens", [256, 2048])
def test_a_slot_is_copied_exactly_however_full_it_is(
    start_runner: Callable[..., LlamaRunner], context_tokens: int
) -> None:
    runner = start_runner(num_slots=2, context_tokens=context_tokens)
    _, expected = ask(runner, prompt_of(0, 1), salt=b"alone")
    holder = make_sequence(prompt_of(0, 0))
    assert runner.kv.admit(holder)
    compute(runner, holder, NUM_SHARED)
    compute(runner, holder, 4)
    assert ask(runner, prompt_of(0, 1)) == (NUM_SHARED, expected)
    runner.kv.release(holder)


def test_a_copy_is_there_for_the_orders_that_follow_it(
    start_runner: Callable[..., LlamaRunner],
) -> None:
    """libllama's own copy would be made with the next llama_decode only."""
    runner = start_runner(num_slots=2, context_tokens=256)
    sequence = make_sequence(list(range(1000, 1200)))
    assert runner.kv.admit(sequence)
    compute(runner, sequence, 100)
    compute(runner, sequence, 100)
    source = sequence.kv.slot
    destination = 1 - source
    states = [SavedState(200), SavedState(200)]
    orders: list[Order] = [
        Save(slot=source, state=states[0]),
        Move(source=source, destination=destination, num_tokens=200),
        Move(source=source, destination=source, num_tokens=0),
        Save(slot=destination, state=states[1]),
        Load(slot=source, state=states[1], num_tokens=200),
        Save(slot=source, state=states[1]),
    ]
    for order in orders:
        runner._memory.carry_out(order)
    assert states[0].data.tobytes() == states[1].data.tobytes()


def test_without_room_for_prefixes_only_slots_remember(
    start_runner: Callable[..., LlamaRunner],
) -> None:
    runner = start_runner(num_slots=1, context_tokens=256)
    for topic in range(2):
        ask(runner, prompt_of(topic, 0))
    assert ask(runner, prompt_of(0, 0))[0] == 0
    assert runner.kv.saved_tokens == 0
