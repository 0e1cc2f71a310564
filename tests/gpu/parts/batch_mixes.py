"""Whether one request is answered alike whatever is computed beside it, and what that costs."""

from collections.abc import Iterator
from random import Random
from time import perf_counter
from typing import TypeAlias

from appliance.errors import EngineError
from appliance.generation import SamplingParams
from engines.pytorch.runner import start
from engines.runner import Runner
from tests.gpu.answering import Ask, answer, random_ids
from tests.gpu.machine import Machine
from tests.gpu.random_models import small_options, small_vocabulary
from tests.gpu.rows import Row, not_measured, spread

# A row whose last bits differ shows in its logprob long before it shows in its token.
_SAMPLING = SamplingParams(temperature=1.0, logprobs=True)
_Answer: TypeAlias = tuple[tuple[int, float], ...]


def measure(machine: Machine) -> Iterator[Row]:
    """As the engine comes, and where it promises to be deterministic."""
    plain, plain_s = _measure_runner(machine, deterministic=False)
    yield plain
    try:
        held, seconds = _measure_runner(machine, deterministic=True)
    except EngineError as error:
        yield not_measured("0.6B, price of being deterministic", error.message, "G15")
        return
    yield held
    yield Row(
        goal="G15",
        what="0.6B, price of being deterministic",
        unit="s",
        floor=plain_s,
        ours=spread([seconds]),
        ratio=seconds / plain_s - 1,
        aim=0.25,
        is_most=True,
    )


def _measure_runner(machine: Machine, *, deterministic: bool) -> tuple[Row, float]:
    """Its row, and the seconds of a full batch."""
    num_slots, context_tokens = machine.size(64, 4), machine.size(1024, 128)
    options = small_options(machine, num_slots, context_tokens, deterministic=deterministic)
    runner = start(options)
    row = _mixes_row(machine, runner, "deterministic" if deterministic else "as it comes")
    seconds = _seconds(machine, runner)
    runner.close()
    return row, seconds


def _mixes_row(machine: Machine, runner: Runner, how: str) -> Row:
    """One request among others, drawn anew each time."""
    numbers = Random(2)  # noqa: S311
    asked = _ask(machine, numbers, machine.size(300, 20))
    num_mixes = machine.size(50, 4)
    answers = {_answer_among(machine, runner, asked, numbers) for _ in range(num_mixes)}
    return Row(
        goal="G15",
        what=f"0.6B, {how}: different answers over {num_mixes} mixes of a batch",
        ours=spread([len(answers)]),
        floor=1.0,
        ratio=float(len(answers)),
        aim=1.0,
        is_most=True,
        note="tokens drawn at temperature 1 and their logprobs",
    )


def _answer_among(machine: Machine, runner: Runner, asked: Ask, numbers: Random) -> _Answer:
    num_others = numbers.randrange(runner.facts.num_slots)
    longest = machine.size(400, 30)
    others = [_ask(machine, numbers, numbers.randint(1, longest)) for _ in range(num_others)]
    others.insert(numbers.randint(0, num_others), asked)
    streams = answer(runner, others)
    found = streams[others.index(asked)].results
    return tuple(
        (result.token_id, result.logprob.logprob) for result in found if result.logprob is not None
    )


def _ask(machine: Machine, numbers: Random, length: int) -> Ask:
    token_ids = random_ids(numbers, length, small_vocabulary(machine))
    return Ask(token_ids=token_ids, max_tokens=machine.size(32, 4), sampling=_SAMPLING)


def _seconds(machine: Machine, runner: Runner) -> float:
    """What a full batch takes."""
    numbers = Random(3)  # noqa: S311
    asks = [_ask(machine, numbers, machine.size(300, 20)) for _ in range(runner.facts.num_slots)]
    answer(runner, asks)
    began_at = perf_counter()
    answer(runner, asks)
    return perf_counter() - began_at
