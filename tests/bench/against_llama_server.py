"""Our whole box against llama-server with its best flags, over HTTP, on the small model.

`make bench-engine`: one server at a time, A B A B, the same GGUF, threads, context per stream,
prompts, greedy sampler and client. Prints medians with their spread and the ratio of each round.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from msgspec import Struct

from tests.bench.llama_server import built, llama_server
from tests.bench.load import chat_body, decode_rate, spread, streams, words
from tests.bench.real_box import MODEL, home_with_model, real_box

NUM_ROUNDS = 5
LEVELS = (1, 8, 16, 32)
NUM_TOKENS = 96
PROMPT_WORDS = 30
CONTEXT_TOKENS = 512
CONFIG = f"""
[engine]
num_slots = {LEVELS[-1]}
context_tokens = {CONTEXT_TOKENS}
"""
# Split KV memory is llama-server's fastest layout here; the unified one collapses at 32 streams.
BEST_FLAGS = (
    "--no-kv-unified", "-np", str(LEVELS[-1]), "-c", str(LEVELS[-1] * CONTEXT_TOKENS), "-t", "2",
)  # fmt: skip


class Door(Struct, frozen=True, kw_only=True):
    """Where a server under test listens."""

    port: int
    key: str


def main() -> None:
    """Measure and print a table, then the same as one line of JSON."""
    built()
    found: dict[str, dict[int, list[float]]] = {"hisar": {}, "llama-server": {}}
    first: dict[str, list[float]] = {"hisar": [], "llama-server": []}
    for turn in range(NUM_ROUNDS):
        for name, server in (("hisar", ours), ("llama-server", theirs)):
            with server() as door:
                asyncio.run(streams(door.port, door.key, bodies(1, 100 + turn)))
                for level in LEVELS:
                    answers = asyncio.run(streams(door.port, door.key, bodies(level, turn)))
                    found[name].setdefault(level, []).append(decode_rate(answers))
                    if level == 1:
                        first[name].append(answers[0].ttft_s * 1000)
    show(found, first)


@contextmanager
def ours() -> Iterator[Door]:
    """Our box with as many slots as llama-server."""
    with home_with_model() as home, real_box(home, CONFIG) as box:
        yield Door(port=box.port, key=box.key)


@contextmanager
def theirs() -> Iterator[Door]:
    """llama-server, which wants no key."""
    with llama_server(*BEST_FLAGS) as port:
        yield Door(port=port, key="none")


def bodies(num_streams: int, salt: int) -> list[bytes]:
    """Requests whose prompts share no more than the template, and whose answers never end early."""
    return [
        chat_body(MODEL, words(PROMPT_WORDS, 37 * salt + i), NUM_TOKENS, ignore_eos=True)
        for i in range(num_streams)
    ]


def show(found: dict[str, dict[int, list[float]]], first: dict[str, list[float]]) -> None:
    """The tables."""
    print(f"{'streams':>7}  {'hisar, tokens/s':<20} {'llama-server':<20} ratio")
    for level in LEVELS:
        pairs = zip(found["hisar"][level], found["llama-server"][level], strict=True)
        ratios = [mine / other for mine, other in pairs]
        print(
            f"{level:>7}  {spread(found['hisar'][level]):<20}"
            f" {spread(found['llama-server'][level]):<20} {spread(ratios)}"
        )
    print(
        f"first token alone, ms: {spread(first['hisar'])} against {spread(first['llama-server'])}"
    )
    medians = {
        name: {level: median(rates) for level, rates in levels.items()}
        for name, levels in found.items()
    }
    print(json.dumps({"tokens_per_s": medians, "ttft_ms": first}))


if __name__ == "__main__":
    main()
