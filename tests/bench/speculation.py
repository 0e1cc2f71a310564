"""What drafts from a text's own tokens bring, through the whole box: with and without, in turns.

`python -m tests.bench.speculation [ROUNDS]`: two boxes that differ in `engine.speculation` alone.
Copying is what drafts are for; ordinary questions must not become slower for them.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import harmonic_mean
from typing import Final

from msgspec import Struct

from tests.bench.load import chat_body, decode_rate, streams
from tests.bench.real_box import MODEL, RealBox, home_with_model, real_box
from tests.bench.report import Goal, Result, at_least, run_alone
from tests.bench.speculation_texts import COPIES, QUESTIONS

NUM_TOKENS: Final = 128
NUM_ALONE: Final = 4
COPYING: Final = at_least(1.5)
ANYTHING: Final = at_least(0.97)


class Work(Struct, frozen=True, kw_only=True):
    """Requests asked one after the other, or all at once."""

    what: str
    bodies: list[bytes]
    goal: Goal
    is_together: bool = False

    def rate(self, box: RealBox) -> float:
        """Tokens a second, of all streams together."""
        batches = [self.bodies] if self.is_together else [[body] for body in self.bodies]
        return harmonic_mean(
            decode_rate(asyncio.run(streams(box.port, box.key, batch))) for batch in batches
        )


def measure(num_rounds: int) -> list[Result]:
    """Decoding speed of each kind of work."""
    with box(speculates=True) as ours, box(speculates=False) as other:
        return [compare(work, ours, other, num_rounds) for work in kinds_of_work()]


def kinds_of_work() -> list[Work]:
    """What is copied, each by itself; then questions alone, drawn by lot, and together."""
    greedy = [chat_body(MODEL, text, NUM_TOKENS) for text in QUESTIONS]
    drawn = [chat_body(MODEL, text, NUM_TOKENS, temperature=0.8, seed=5) for text in QUESTIONS]
    return [
        *(
            Work(
                what=f"1 stream, {what}", bodies=[chat_body(MODEL, text, NUM_TOKENS)], goal=COPYING
            )
            for what, text in COPIES.items()
        ),
        Work(what="1 stream, questions", bodies=greedy[:NUM_ALONE], goal=ANYTHING),
        Work(
            what="1 stream, questions at temperature 0.8", bodies=drawn[:NUM_ALONE], goal=ANYTHING
        ),
        Work(
            what=f"{len(greedy)} streams, questions", bodies=greedy, goal=ANYTHING, is_together=True
        ),
    ]


def compare(work: Work, ours: RealBox, other: RealBox, num_rounds: int) -> Result:
    """Both boxes in turns, after a first time that is not counted."""
    for each in (ours, other):
        work.rate(each)
    rates = [(work.rate(ours), work.rate(other)) for _ in range(num_rounds)]
    return Result(
        what=work.what,
        unit="tokens/s",
        ours=[with_drafts for with_drafts, _ in rates],
        rival="without",
        theirs=[without for _, without in rates],
        goal=work.goal,
    )


@contextmanager
def box(*, speculates: bool) -> Iterator[RealBox]:
    """A box of its own home."""
    config = f"[engine]\nnum_slots = {len(QUESTIONS)}\nspeculation = {str(speculates).lower()}\n"
    with home_with_model() as home, real_box(home, config) as started:
        yield started


if __name__ == "__main__":
    run_alone(measure)
