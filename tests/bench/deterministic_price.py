"""Tokens a second with the deterministic mode and without, in turns.

`python -m tests.bench.deterministic_price on|off` prints one mode's as JSON: each time in a process
of its own, because the mode is also a matter of a worker's environment.
"""

import subprocess
import sys
import time
from typing import Final

import msgspec
from msgspec.structs import replace

from appliance.environment import worker_environment
from engines.runner import Runner
from tests.bench.deterministic_answers import asks, runner
from tests.bench.report import Result
from tests.engines.situations import MAX_RUNNING, answer, fresh_salt

LEVELS: Final = (1, MAX_RUNNING)
NUM_TOKENS: Final = 64
_MODES: Final = {"on": True, "off": False}


def measure(num_rounds: int) -> list[Result]:
    """Decoding speed at each number of sequences."""
    rounds = [(_rates_apart("on"), _rates_apart("off")) for _ in range(num_rounds)]
    return [
        Result(
            what=f"deterministic decode, {level} at once",
            unit="tokens/s",
            ours=[on[column] for on, _ in rounds],
            rival="with the mode off",
            theirs=[off[column] for _, off in rounds],
        )
        for column, level in enumerate(LEVELS)
    ]


def main() -> None:
    """Print one mode's figures."""
    with runner(deterministic=_MODES[sys.argv[1]]) as started:
        print(msgspec.json.encode([_rate(started, level) for level in LEVELS]).decode())


def _rate(runner: Runner, num_sequences: int) -> float:
    """Of sequences whose prompts are computed already."""
    salt = fresh_salt()
    prompts = asks(runner, num_sequences, max_tokens=NUM_TOKENS)
    answer(runner, [replace(ask, max_tokens=1) for ask in prompts], salt=salt)
    started = time.perf_counter()
    answer(runner, prompts, salt=salt)
    return num_sequences * NUM_TOKENS / (time.perf_counter() - started)


def _rates_apart(mode: str) -> list[float]:
    command = [sys.executable, "-m", "tests.bench.deterministic_price", mode]
    environment = worker_environment(deterministic=_MODES[mode])
    return msgspec.json.decode(subprocess.check_output(command, env=environment), type=list[float])


if __name__ == "__main__":
    main()
