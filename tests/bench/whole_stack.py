"""The whole box against the least that decoding can cost, on the small model.

`python -m tests.bench.whole_stack`: time from `hisar up` to a first token, tokens a second at
concurrency 1 and 8 against the bare loop (the two in turns, A B A B), and idle memory.
"""

import asyncio
import time
from pathlib import Path

from tests.bench.bare_loop import rate_apart
from tests.bench.load import chat_body, decode_rate, spread, streams, words
from tests.bench.real_box import MODEL, RealBox, home_with_model, real_box
from tests.small_model import PATH

NUM_ROUNDS = 5
NUM_TOKENS = 128
PROMPT_WORDS = 30


def main() -> None:
    """Measure and print."""
    with home_with_model() as home:
        ready = [time_to_first_token(home) for _ in range(NUM_ROUNDS)]
        print(f"hisar up to first token          {spread(ready)} s")
        with real_box(home) as box:
            time.sleep(3)
            print(f"gateway, idle                    {box.resident_mb('gateway'):.0f} MB")
            for num_streams in (1, 8):
                compare(box, num_streams)


def time_to_first_token(home: Path) -> float:
    """Seconds from starting `hisar up` to the first token of a 20-token question."""
    with real_box(home) as box:
        asyncio.run(streams(box.port, box.key, [chat_body(MODEL, "Say hello.", 1)]))
        return time.perf_counter() - box.started_at


def compare(box: RealBox, num_streams: int) -> None:
    """Bare loop and box in turns; prints both and the median ratio."""
    asyncio.run(streams(box.port, box.key, bodies(num_streams, 0)))
    bare, whole = [], []
    for turn in range(NUM_ROUNDS):
        bare.append(rate_apart(PATH, num_sequences=num_streams, num_tokens=NUM_TOKENS))
        whole.append(
            decode_rate(asyncio.run(streams(box.port, box.key, bodies(num_streams, turn + 1))))
        )
    ratios = [ours / floor for ours, floor in zip(whole, bare, strict=True)]
    print(f"bare loop, {num_streams} sequences           {spread(bare)} tokens/s")
    print(f"box, {num_streams} streams                   {spread(whole)} tokens/s")
    print(f"share of the bare loop           {spread(ratios)}")


def bodies(num_streams: int, salt: int) -> list[bytes]:
    """Requests whose prompts share nothing; the end of the answer is never sampled."""
    return [
        chat_body(MODEL, words(PROMPT_WORDS, 31 * salt + i), NUM_TOKENS, logit_bias={"2": -100})
        for i in range(num_streams)
    ]


if __name__ == "__main__":
    main()
