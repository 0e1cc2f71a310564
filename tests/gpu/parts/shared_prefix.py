"""How much sooner the first token comes where nine tenths of a prompt are known."""

from collections.abc import Iterator
from random import Random

from engines.runner import Runner
from tests.gpu.answering import Ask, answer, random_ids
from tests.gpu.machine import Machine
from tests.gpu.random_models import small_vocabulary, start_small
from tests.gpu.rows import Row, spread


def measure(machine: Machine) -> Iterator[Row]:
    """Prompts of 8k tokens, of which 90 % are those of one before, or none."""
    length = machine.size(8192, 64)
    runner = start_small(machine, num_slots=4, context_tokens=length + 32)
    numbers = Random(1)  # noqa: S311
    num_tokens = small_vocabulary(machine)
    known = random_ids(numbers, length * 9 // 10, num_tokens)
    _first_after(runner, known)

    def prompt(start: list[int]) -> list[int]:
        return start + random_ids(numbers, length - len(start), num_tokens)

    num_repeats = machine.size(7, 1)
    _first_after(runner, prompt(known))  # both kinds once before
    cold = spread([_first_after(runner, prompt([])) for _ in range(num_repeats)])
    warm = spread([_first_after(runner, prompt(known)) for _ in range(num_repeats)])
    runner.close()
    yield Row(
        goal="G12",
        what="0.6B, first token after 8k tokens: 90 % known against none",
        unit="ms",
        floor=cold.middle * 1e3,
        ours=warm.times(1e3),
        ratio=cold.middle / warm.middle,
        aim=6.0,
    )


def _first_after(runner: Runner, prompt: list[int]) -> float:
    (stream,) = answer(runner, [Ask(token_ids=prompt, max_tokens=1, salt=b"shared")])
    return stream.first_after_s
