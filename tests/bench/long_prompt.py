"""What running streams feel when a long prompt enters: ours against llama-server as it comes.

`python -m tests.bench.long_prompt [ROUNDS]`: eight streams decode, then a prompt of 3,000 tokens is
sent. Between then and its first token, the gaps between the tokens of each stream are noted. The
prompt's speed is its tokens over the time to its first token; once beside the streams, once alone.
"""

import asyncio
import statistics
import time
from functools import partial
from itertools import pairwise

from msgspec import Struct

from tests.bench.doors import Door, Load, default_llama_server, our_box
from tests.bench.load import chat_body, stream, watch, words
from tests.bench.real_box import MODEL
from tests.bench.report import Result, at_least, at_most, run_alone

NUM_STREAMS = 8
LOAD = Load(num_streams=NUM_STREAMS + 1, context_tokens=4096)
PROMPT_TOKENS = 3000
_SERVERS = {"hisar": our_box, "llama-server": default_llama_server}
# Long enough to outlast the prompt; they are hung up on then.
_STREAM_TOKENS = 3500
_SETTLED_TOKENS = 8
_PATIENCE_S = 300


class Felt(Struct, frozen=True, kw_only=True):
    """One round with one server."""

    worst_gap_ms: float
    prompt_rate: float
    prompt_rate_alone: float


def measure(num_rounds: int) -> list[Result]:
    """The 99th percentile of the gaps, and the prompt's speed."""
    felt: dict[str, list[Felt]] = {name: [] for name in _SERVERS}
    for turn in range(num_rounds):
        for name, server in _SERVERS.items():
            with server(LOAD) as door:
                felt[name].append(asyncio.run(_feel(door, turn)))
    ours, theirs = felt["hisar"], felt["llama-server"]
    return [
        Result(
            what="99 % of gaps beside a 3k prompt",
            unit="ms",
            ours=[one.worst_gap_ms for one in ours],
            rival="llama-server as it comes",
            theirs=[one.worst_gap_ms for one in theirs],
            goal=at_most(0.25),
        ),
        Result(
            what="a 3k prompt beside 8 streams",
            unit="tokens/s",
            ours=[one.prompt_rate for one in ours],
            rival="llama-server as it comes",
            theirs=[one.prompt_rate for one in theirs],
            goal=at_least(0.85),
        ),
        *(
            Result(
                what=f"a 3k prompt beside 8 streams in {name}",
                unit="tokens/s",
                ours=[one.prompt_rate for one in felt[name]],
                rival="without streams",
                theirs=[one.prompt_rate_alone for one in felt[name]],
            )
            for name in _SERVERS
        ),
    ]


async def _feel(door: Door, turn: int) -> Felt:
    alone = await stream(door.port, door.key, _long_body(2 * turn))
    running = RunningStreams(door, first_salt=NUM_STREAMS * turn)
    await asyncio.wait_for(running.are_settled.wait(), _PATIENCE_S)
    asked_at = time.perf_counter()
    beside = await stream(door.port, door.key, _long_body(2 * turn + 1))
    await running.hang_up()
    gaps = running.gaps(asked_at, asked_at + beside.ttft_s)
    return Felt(
        worst_gap_ms=1000 * statistics.quantiles(gaps, n=100)[98],
        prompt_rate=PROMPT_TOKENS / beside.ttft_s,
        prompt_rate_alone=PROMPT_TOKENS / alone.ttft_s,
    )


class RunningStreams:
    """Streams that decode until they are hung up on, and when their tokens came."""

    def __init__(self, door: Door, first_salt: int) -> None:
        self.are_settled = asyncio.Event()
        self._token_times: list[list[float]] = [[] for _ in range(NUM_STREAMS)]
        self._tasks = [
            asyncio.create_task(
                watch(door.port, door.key, _stream_body(first_salt + i), partial(self._note, i))
            )
            for i in range(NUM_STREAMS)
        ]

    async def hang_up(self) -> None:
        """End them all. Raises RuntimeError where one had ended by itself."""
        ended_early = any(task.done() for task in self._tasks)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if ended_early:
            raise RuntimeError("a stream ended before the long prompt had its first token")

    def gaps(self, begin: float, end: float) -> list[float]:
        """Seconds from one token to the next, where some of them lie between begin and end."""
        return [
            after - before
            for token_times in self._token_times
            for before, after in pairwise(token_times)
            if after > begin and before < end
        ]

    def _note(self, i: int) -> None:
        self._token_times[i].append(time.perf_counter())
        if min(map(len, self._token_times)) >= _SETTLED_TOKENS:
            self.are_settled.set()


def _long_body(salt: int) -> bytes:
    """About a token a word. The first token may be no text yet, so there are some."""
    return chat_body(MODEL, words(PROMPT_TOKENS, 11 * salt), 8, ignore_eos=True)


def _stream_body(salt: int) -> bytes:
    return chat_body(MODEL, words(30, 37 * salt), _STREAM_TOKENS, ignore_eos=True)


if __name__ == "__main__":
    run_alone(measure)
