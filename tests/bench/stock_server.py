"""Our box against llama-cpp-python's own server, which computes one request at a time.

`python -m tests.bench.stock_server [ROUNDS]`. Alone, decoding is compared; with eight, the answers'
tokens over the time until all are there, since its streams do not run side by side.
"""

import asyncio
import time

from tests.bench.decoding import NUM_TOKENS, PROMPT_WORDS
from tests.bench.doors import Door, Load, our_box, stock_server
from tests.bench.load import chat_body, decode_rate, streams, words
from tests.bench.real_box import MODEL
from tests.bench.report import Result, at_least, run_alone

NUM_STREAMS = 8
LOAD = Load(num_streams=NUM_STREAMS, context_tokens=512)
_SERVERS = {"hisar": our_box, "stock server": stock_server}
_END_OF_ANSWER = "2"


def measure(num_rounds: int) -> list[Result]:
    """Decoding alone, and throughput at eight."""
    alone: dict[str, list[float]] = {name: [] for name in _SERVERS}
    together: dict[str, list[float]] = {name: [] for name in _SERVERS}
    for turn in range(num_rounds):
        for name, server in _SERVERS.items():
            with server(LOAD) as door:
                asyncio.run(streams(door.port, door.key, _bodies(1, 100 + turn)))
                answers = asyncio.run(streams(door.port, door.key, _bodies(1, turn)))
                alone[name].append(decode_rate(answers))
                together[name].append(_throughput(door, turn))
    return [
        Result(
            what="decode, 1 stream",
            unit="tokens/s",
            ours=alone["hisar"],
            rival="stock server",
            theirs=alone["stock server"],
            goal=at_least(1.1),
        ),
        Result(
            what=f"all of {NUM_STREAMS} answers",
            unit="tokens/s",
            ours=together["hisar"],
            rival="stock server",
            theirs=together["stock server"],
            goal=at_least(2.5),
        ),
    ]


def _throughput(door: Door, turn: int) -> float:
    started = time.perf_counter()
    answers = asyncio.run(streams(door.port, door.key, _bodies(NUM_STREAMS, 200 + turn)))
    num_tokens = sum(len(answer.token_times) for answer in answers)
    return num_tokens / (time.perf_counter() - started)


def _bodies(num_streams: int, salt: int) -> list[bytes]:
    """Answers of full length: the server knows `logit_bias` and not `ignore_eos`."""
    return [
        chat_body(
            MODEL,
            words(PROMPT_WORDS, 37 * salt + i),
            NUM_TOKENS,
            logit_bias={_END_OF_ANSWER: -100},
        )
        for i in range(num_streams)
    ]


if __name__ == "__main__":
    run_alone(measure)
