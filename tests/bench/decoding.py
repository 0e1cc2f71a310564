"""Decoding in our box, in llama-server with its best flags, and in a bare loop, in turns.

`python -m tests.bench.decoding [ROUNDS]`: the same GGUF, threads, context per stream, prompts,
greedy sampler and client.
"""

import asyncio
from statistics import median

from tests.bench.bare_loop import rate_apart
from tests.bench.doors import (
    Door,
    Load,
    best_llama_server,
    llama_server_without_flash,
    our_box,
)
from tests.bench.load import chat_body, decode_rate, streams, words
from tests.bench.real_box import MODEL
from tests.bench.report import Goal, Result, at_least, at_most, run_alone
from tests.small_model import PATH

LEVELS = (1, 8, 16, 32)
LOAD = Load(num_streams=LEVELS[-1], context_tokens=512)
NUM_TOKENS = 96
NUM_ALONE = 5
PROMPT_WORDS = 30
_SERVERS = {
    "hisar": our_box,
    "llama-server": best_llama_server,
    "llama-server -fa off": llama_server_without_flash,
}
_FACTORS = {1: 0.97, 8: 1.05, 16: 1.05, 32: 1.05}
_BARE_SHARE = 0.92


def measure(num_rounds: int) -> list[Result]:
    """Decoding at each number of streams, and the first token of a lone one."""
    rates: dict[str, dict[int, list[float]]] = {
        name: {level: [] for level in LEVELS} for name in (*_SERVERS, "bare loop")
    }
    first_ms: dict[str, list[float]] = {name: [] for name in _SERVERS}
    for turn in range(num_rounds):
        for name, server in _SERVERS.items():
            with server(LOAD) as door:
                first_ms[name].append(_first_token_ms(door, turn))
                for level in LEVELS:
                    rates[name][level].append(_rate(door, level, turn))
        for level in LEVELS:
            rate = rate_apart(PATH, num_sequences=level, num_tokens=NUM_TOKENS)
            rates["bare loop"][level].append(rate)
    return [
        *(
            _result(rates, level, _best(rates, level), at_least(_FACTORS[level]))
            for level in LEVELS
        ),
        Result(
            what="first token alone",
            unit="ms",
            ours=first_ms["hisar"],
            rival="llama-server",
            theirs=first_ms["llama-server"],
            goal=at_most(1.1),
        ),
        *(_result(rates, level, "bare loop", at_least(_BARE_SHARE)) for level in LEVELS),
    ]


def bodies(num_streams: int, salt: int) -> list[bytes]:
    """Requests whose prompts share no more than the template, and whose answers never end early."""
    return [
        chat_body(MODEL, words(PROMPT_WORDS, 37 * salt + i), NUM_TOKENS, ignore_eos=True)
        for i in range(num_streams)
    ]


def _rate(door: Door, level: int, turn: int) -> float:
    return decode_rate(asyncio.run(streams(door.port, door.key, bodies(level, turn))))


def _first_token_ms(door: Door, turn: int) -> float:
    """The middle one of some, after one that warms up."""
    alone = [
        asyncio.run(streams(door.port, door.key, bodies(1, 100 + NUM_ALONE * turn + i)))[0]
        for i in range(NUM_ALONE + 1)
    ]
    return 1000 * median(answer.ttft_s for answer in alone[1:])


def _best(rates: dict[str, dict[int, list[float]]], level: int) -> str:
    """The flags of llama-server that are the fastest with so many streams."""
    return max(list(_SERVERS)[1:], key=lambda name: median(rates[name][level]))


def _result(rates: dict[str, dict[int, list[float]]], level: int, rival: str, goal: Goal) -> Result:
    return Result(
        what=f"decode, {level} streams",
        unit="tokens/s",
        ours=rates["hisar"][level],
        rival=rival,
        theirs=rates[rival][level],
        goal=goal,
    )


if __name__ == "__main__":
    run_alone(measure)
