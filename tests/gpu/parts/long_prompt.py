"""How long running streams wait for their next token while a prompt of 32k tokens is computed."""

from collections.abc import Iterator
from random import Random
from typing import Final

from engines.pacing import PromptPace
from engines.step_loop import STEP_S
from tests.gpu.answering import Answering, Ask, Stream, random_ids
from tests.gpu.machine import Machine
from tests.gpu.random_models import small_vocabulary, start_small
from tests.gpu.rows import Row, Spread, spread

_NUM_STREAMS: Final = 16
_IDLE_TOKENS: Final = 100


def measure(machine: Machine) -> Iterator[Row]:
    """The gap that one token in a hundred exceeds, and the prompt's own speed, against alone."""
    length = machine.size(32_768, 96)
    numbers = Random(4)  # noqa: S311
    prompts = [random_ids(numbers, length, small_vocabulary(machine)) for _ in range(3)]
    runner = start_small(
        machine, num_slots=_NUM_STREAMS + 1, context_tokens=length + machine.size(2048, 64)
    )
    answering = Answering(runner, pace=PromptPace(STEP_S))
    _first_after(answering, prompts[0])  # compiles what such a prompt needs
    alone_s = _first_after(answering, prompts[1])
    streams = _begin_streams(machine, answering)
    idle = _gaps(streams)
    num_before = streams[0].num_tokens
    beside_s = _first_after(answering, prompts[2])
    busy = _gaps(streams, num_before)
    answering.cancel(streams)
    runner.close()
    yield Row(
        goal="G16",
        what=f"0.6B, {_NUM_STREAMS} streams: 99th percentile between tokens beside 32k tokens",
        unit="ms",
        floor=_late(idle) * 1e3,
        ours=Spread(_late(busy), *_ends(busy)).times(1e3),
        ratio=_late(busy) / _late(idle),
        aim=3.0,
        is_most=True,
        note=f"against without them; steps of at most {STEP_S} s",
    )
    yield Row(
        goal="G16",
        what="0.6B, speed of 32k tokens beside streams against alone",
        unit="s",
        floor=alone_s,
        ours=spread([beside_s]),
        ratio=alone_s / beside_s,
        aim=0.85,
    )


def _first_after(answering: Answering, prompt: list[int]) -> float:
    stream = answering.add(Ask(token_ids=prompt, max_tokens=1))
    while not stream.is_done:
        answering.step()
    return stream.first_after_s


def _begin_streams(machine: Machine, answering: Answering) -> list[Stream]:
    """Streams that have decoded for a while, with nothing beside them."""
    numbers = Random(5)  # noqa: S311
    max_tokens = machine.size(1600, 40)
    prompts = [random_ids(numbers, 16, small_vocabulary(machine)) for _ in range(_NUM_STREAMS)]
    streams = [answering.add(Ask(token_ids=ids, max_tokens=max_tokens)) for ids in prompts]
    wanted = machine.size(_IDLE_TOKENS, 4)
    while any(stream.num_tokens < wanted for stream in streams):
        answering.step()
    return streams


def _gaps(streams: list[Stream], start: int = 1) -> list[float]:
    """Seconds between the tokens of each stream, from its token `start` on."""
    return [
        later - earlier
        for stream in streams
        for earlier, later in zip(stream.came_at[start - 1 :], stream.came_at[start:], strict=False)
    ]


def _late(gaps: list[float]) -> float:
    return sorted(gaps)[len(gaps) * 99 // 100]


def _ends(gaps: list[float]) -> tuple[float, float]:
    return min(gaps), max(gaps)
