"""The same prompts in all situations that must not matter, in a process like a worker's.

`python -m tests.bench.deterministic_answers PROMPTS` prints what it found as JSON.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import msgspec
from msgspec import Struct

from appliance.environment import worker_environment
from engines.runner import RUNNERS, Runner, RunnerOptions
from tests.bench.deterministic_texts import chat_prompts
from tests.engines.situations import MAX_RUNNING, Answers, Ask, preempted, together, twice
from tests.small_model import PATH

NUM_TOKENS: Final = 24
CONTEXT_TOKENS: Final = 1024


class Situation(Struct, frozen=True, kw_only=True):
    """How many answers are those that were given alone, and how many differ from each other."""

    name: str
    num_equal: int
    num_unique: int


def compare(num_prompts: int) -> list[Situation]:
    """Every prompt in every situation, in deterministic mode."""
    command = [sys.executable, "-m", "tests.bench.deterministic_answers", str(num_prompts)]
    environment = worker_environment(deterministic=True)
    printed = subprocess.check_output(command, env=environment)
    return msgspec.json.decode(printed, type=list[Situation])


@contextmanager
def runner(*, deterministic: bool) -> Iterator[Runner]:
    """The small model with a slot for each of the prompts that run together."""
    options = RunnerOptions(
        model="model",
        path=PATH,
        context_tokens=CONTEXT_TOKENS,
        num_slots=MAX_RUNNING,
        deterministic=deterministic,
    )
    with closing(RUNNERS["llamacpp"](options)) as started:
        yield started


def asks(runner: Runner, count: int, *, max_tokens: int = NUM_TOKENS) -> list[Ask]:
    """So many different prompts, to be answered greedily."""
    return [
        Ask(token_ids=runner.tokenizer.encode(text, markers=True), max_tokens=max_tokens)
        for text in chat_prompts(count)
    ]


def main() -> None:
    """Ask, and print what was answered how often."""
    with runner(deterministic=True) as started:
        prompts = asks(started, int(sys.argv[1]))
        alone, again = twice(started, prompts)
        answers = {
            "alone": alone,
            f"in a batch of {MAX_RUNNING}": together(started, prompts, alone),
            "from the cache": again,
            "after pre-emption": preempted(started, prompts, alone),
        }
    found = [_situation(name, given, alone) for name, given in answers.items()]
    print(msgspec.json.encode(found).decode())


def _situation(name: str, answers: Answers, alone: Answers) -> Situation:
    return Situation(
        name=name,
        num_equal=sum(map(list.__eq__, answers, alone)),
        num_unique=len(set(map(tuple, answers))),
    )


if __name__ == "__main__":
    main()
