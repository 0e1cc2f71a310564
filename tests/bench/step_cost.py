"""What a step costs outside llama_decode, with 32 streams of the real model.

`python -m tests.bench.step_cost` prints one figure, the median of its steps in microseconds: the
step loop of a worker without its socket, so planning, filling the batch, choosing tokens from the
logits, text, events and their frame.
"""

import gc
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from statistics import median
from typing import Any

import llama_cpp.llama_cpp as llama

from appliance.environment import worker_environment
from appliance.generation import GenerationRequest, SamplingParams, StopConditions, TextPrompt
from engines.intake import Encoded, Intake
from engines.llamacpp.runner import LlamaRunner, start
from engines.prompting import PromptEncoder
from engines.protocol import Events, Generate, encode_frame
from engines.runner import RunnerOptions
from engines.step_loop import StepLoop
from tests.bench.load import words
from tests.bench.report import Result, at_most
from tests.small_model import PATH

NUM_STREAMS = 32
CONTEXT_TOKENS = 512
NUM_STEPS = 60
PROMPT_WORDS = 30
AIM_US = 300


def measure(num_rounds: int) -> list[Result]:
    """Each round in a process and an environment like a worker's."""
    command = [sys.executable, "-m", "tests.bench.step_cost"]
    rounds = [
        float(subprocess.check_output(command, env=worker_environment())) for _ in range(num_rounds)
    ]
    return [
        Result(
            what=f"a step outside llama_decode, {NUM_STREAMS} streams",
            unit="us",
            ours=rounds,
            goal=at_most(AIM_US),
        )
    ]


def main() -> None:
    """Print one figure."""
    options = RunnerOptions(
        model="model", path=PATH, context_tokens=CONTEXT_TOKENS, num_slots=NUM_STREAMS
    )
    runner = start(options)
    assert isinstance(runner, LlamaRunner)
    with closing(runner), timed_decodes() as decodes, decoding_loop(runner) as loop:
        gc.freeze()
        print(median(1e6 * own_seconds(loop, decodes) for _ in range(NUM_STEPS)))


def own_seconds(loop: StepLoop, decodes: list[float]) -> float:
    """One step, and its frame, less the time in llama_decode."""
    decodes.clear()
    started = time.perf_counter()
    encode_frame(Events(batch=loop.step()))
    return time.perf_counter() - started - sum(decodes)


@contextmanager
def timed_decodes() -> Iterator[list[float]]:
    """The seconds of each llama_decode since the list was last cleared."""
    seconds: list[float] = []
    real: Callable[..., Any] = llama.llama_decode

    def timed(*arguments: Any) -> Any:
        started = time.perf_counter()
        status = real(*arguments)
        seconds.append(time.perf_counter() - started)
        return status

    llama.llama_decode = timed
    try:
        yield seconds
    finally:
        llama.llama_decode = real


@contextmanager
def decoding_loop(runner: LlamaRunner) -> Iterator[StepLoop]:
    """A loop in which every stream has had its prompt computed, and none will end soon."""
    waiting: list[Encoded] = []
    with closing(Intake(PromptEncoder(runner.tokenizer, None), lambda _: None)) as intake:
        loop = StepLoop(runner, _Inline(intake, waiting), time.monotonic)
        for number in range(NUM_STREAMS):
            loop.receive(Generate(request=_request(number)))
        for encoded in waiting:
            loop.receive(encoded)
        while loop.stats().generation_tokens < 2 * NUM_STREAMS:
            loop.step()
        yield loop


class _Inline:
    """Tokenises here and now, where a worker has threads for it."""

    def __init__(self, intake: Intake, ready: list[Encoded]) -> None:
        self._intake = intake
        self._ready = ready

    def submit(self, request: GenerationRequest, is_wanted: Callable[[], bool]) -> None:
        self._ready.append(self._intake.encode(request, is_wanted))


def _request(number: int) -> GenerationRequest:
    return GenerationRequest(
        id=f"stream-{number}",
        model="model",
        prompts=(TextPrompt(text=words(PROMPT_WORDS, number)),),
        sampling=SamplingParams(temperature=0.0),
        stopping=StopConditions(ignores_eos=True),
    )


if __name__ == "__main__":
    main()
