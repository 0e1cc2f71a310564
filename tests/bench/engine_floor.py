"""What scheduler, runner and sampler cost on top of a bare llama_decode loop.

`python -m tests.bench.engine_floor MODEL` runs both in turn (A B A B ...) at several numbers of
sequences and prints tokens a second as medians with their spread, and the ratio of the medians.
"""

import argparse
import statistics
import time
from pathlib import Path

from appliance.generation import FinishReason, SamplingParams
from engines.llamacpp.library import load_library
from engines.llamacpp.runner import start
from engines.runner import RunnerOptions
from engines.scheduler import Scheduler
from engines.sequence import Sequence
from tests.bench.bare_loop import decode_rate

PROMPT_TOKENS = 64


def engine_rate(path: Path, num_sequences: int, num_tokens: int) -> float:
    """Decoded tokens a second of greedy sequences under the real scheduler, prompts not counted."""
    options = RunnerOptions(
        model="model", path=path, context_tokens=1024, num_slots=num_sequences, step_tokens=512
    )
    runner = start(options)
    scheduler = Scheduler(runner.kv, step_tokens=512, max_running=num_sequences)
    sequences = [_make_sequence(number, num_tokens) for number in range(num_sequences)]
    for sequence in sequences:
        scheduler.add(sequence)
    num_decoded, elapsed = 0, 0.0
    while sequences[-1].num_output_tokens < num_tokens:
        started = time.perf_counter()
        plan = scheduler.plan(started)
        if plan is None:
            break
        list(scheduler.commit(plan, runner.execute(plan)))
        if plan.num_tokens == num_sequences:
            num_decoded += num_sequences
            elapsed += time.perf_counter() - started
    for sequence in sequences:
        scheduler.finish(sequence, FinishReason.LENGTH)
    runner.close()
    return num_decoded / elapsed


def _make_sequence(number: int, num_tokens: int) -> Sequence:
    return Sequence(
        request_id=str(number),
        index=0,
        num_prompt_tokens=PROMPT_TOKENS,
        token_ids=[number + 50, *range(100, 100 + PROMPT_TOKENS - 1)],
        max_tokens=num_tokens,
        sampling=SamplingParams(temperature=0.0),
        seed=1,
        cache_salt=str(number).encode(),
    )


def main() -> None:
    """Measure and print one table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    load_library()
    print(f"{'sequences':>9} {'loop':<14} {'median':>8} {'least':>8} {'most':>8} {'of split':>8}")
    for count in arguments.sequences:
        _compare(arguments.model, count, arguments.tokens, arguments.repeats)


def _compare(path: Path, count: int, num_tokens: int, repeats: int) -> None:
    rates: dict[str, list[float]] = {"bare, split": [], "engine": [], "bare, unified": []}
    for _ in range(repeats):
        for name, found in rates.items():
            if name == "engine":
                found.append(engine_rate(path, count, num_tokens))
            else:
                found.append(
                    decode_rate(
                        path,
                        num_sequences=count,
                        num_tokens=num_tokens,
                        prompt_tokens=PROMPT_TOKENS,
                        is_unified=name == "bare, unified",
                    )
                )
    split = statistics.median(rates["bare, split"])
    for name, found in rates.items():
        median = statistics.median(found)
        print(
            f"{count:>9} {name:<14} {median:>8.1f} {min(found):>8.1f} {max(found):>8.1f}"
            f" {median / split:>8.2f}"
        )


if __name__ == "__main__":
    main()
