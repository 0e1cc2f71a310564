"""What guessing tokens saves where an answer repeats itself, and costs where it does not."""

from collections.abc import Iterator
from typing import Final

from appliance.generation import SamplingParams
from engines.runner import Runner
from engines.speculation import Speculation
from tests.gpu.answering import GREEDY, Ask, answer
from tests.gpu.machine import Machine
from tests.gpu.random_models import start_small
from tests.gpu.rows import Row, Spread, spread

_PROMPT: Final = [*range(8)] * 4


def measure(machine: Machine) -> Iterator[Row]:
    """One stream: of a model that repeats its last token, and of one that draws any."""
    yield _row(machine, "copying", GREEDY, copies=True, aim=1.8)
    yield _row(machine, "nothing to copy", SamplingParams(temperature=1.0), copies=False, aim=0.97)


def _row(machine: Machine, what: str, sampling: SamplingParams, *, copies: bool, aim: float) -> Row:
    length = machine.size(512, 24)
    runner = start_small(machine, num_slots=1, context_tokens=length + len(_PROMPT), copies=copies)
    ask = Ask(token_ids=_PROMPT, max_tokens=length, sampling=sampling)
    plain, drafted = [], []
    for _ in range(machine.size(4, 1)):
        plain.append(_seconds(runner, ask, speculates=False))
        drafted.append(_seconds(runner, ask, speculates=True))
    runner.close()
    without, took = _of_later(plain), _of_later(drafted)
    return Row(
        goal="G14",
        what=f"0.6B, one stream, {what}: with guesses against without",
        unit="ms",
        floor=without.middle * 1e3,
        ours=took.times(1e3),
        ratio=without.middle / took.middle,
        aim=aim,
        note=f"{length} tokens",
    )


def _seconds(runner: Runner, ask: Ask, *, speculates: bool) -> float:
    speculation = Speculation(runner.kv) if speculates else None
    (stream,) = answer(runner, [ask], speculation=speculation)
    return stream.came_at[-1] - stream.came_at[0]


def _of_later(times: list[float]) -> Spread:
    """The first of several runs finds nothing warm."""
    return spread(times[1:] or times)
