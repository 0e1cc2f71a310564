"""What a prompt costs whose beginning was seen before.

`python -m tests.bench.prefixes [ROUNDS]` measures three things:

- short questions after 32 system prompts, eight clients, four times as many prompts as slots: ours
  against llama-server with its best flags and its own store of prompts in memory. Each prompt has
  been asked about once; both servers stay up, and while one is asked the other is idle;
- the first token after a system prompt of 4,000 tokens, seen before and not;
- eight choices of one prompt, and eight prompts that share nothing, of 1,000 tokens each.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from statistics import median

from tests.bench.doors import Door, Load, best_llama_server, our_box
from tests.bench.load import chat_body, stream, streams, words
from tests.bench.real_box import MODEL
from tests.bench.report import Result, at_least, at_most, run_alone

NUM_SLOTS = 8
NUM_SYSTEM_PROMPTS = 32
SYSTEM_TOKENS = 600
NUM_QUESTIONS = 128
QUESTION_WORDS = 10
ANSWER_TOKENS = 16

LONG_TOKENS = 4000
NUM_WARM = 3

NUM_CHOICES = 8
CHOICE_PROMPT_TOKENS = 1000


def measure(num_rounds: int) -> list[Result]:
    """All three."""
    return [
        *many_system_prompts(num_rounds),
        *first_tokens(num_rounds),
        *choices(num_rounds),
    ]


def many_system_prompts(num_rounds: int) -> list[Result]:
    """Requests a second."""
    rates: dict[str, list[float]] = {"hisar": [], "llama-server": []}
    first: dict[str, list[float]] = {"hisar": [], "llama-server": []}
    with _both(Load(num_streams=NUM_SLOTS, context_tokens=1024)) as doors:
        for name, door in doors.items():
            first[name].append(asyncio.run(_request_rate(door, range(NUM_SYSTEM_PROMPTS))))
        for turn in range(num_rounds):
            order = Random(turn)  # noqa: S311
            asked = [order.randrange(NUM_SYSTEM_PROMPTS) for _ in range(NUM_QUESTIONS)]
            for name, door in doors.items():
                rates[name].append(asyncio.run(_request_rate(door, asked)))
    return [
        Result(
            what="questions after 32 known system prompts, 8 slots",
            unit="requests/s",
            ours=rates["hisar"],
            rival="llama-server",
            theirs=rates["llama-server"],
            goal=at_least(1.5),
        ),
        Result(
            what="the first question after each",
            unit="requests/s",
            ours=first["hisar"],
            rival="llama-server",
            theirs=first["llama-server"],
        ),
    ]


def first_tokens(num_rounds: int) -> list[Result]:
    """The time to a first token, warm and cold."""
    cold: list[float] = []
    warm: list[float] = []
    with our_box(Load(num_streams=1, context_tokens=5120)) as door:
        asyncio.run(_first_token_s(door, 1, number=100))
        for turn in range(num_rounds):
            cold.append(asyncio.run(_first_token_s(door, LONG_TOKENS, number=turn)))
            again = [
                asyncio.run(_first_token_s(door, LONG_TOKENS, number=turn)) for _ in range(NUM_WARM)
            ]
            warm.append(median(again))
    return [
        Result(
            what="first token after 4,000 known tokens",
            unit="s",
            ours=warm,
            rival="unknown tokens",
            theirs=cold,
            goal=at_most(1 / 25),
        )
    ]


def choices(num_rounds: int) -> list[Result]:
    """Answers a second."""
    together: list[float] = []
    apart: list[float] = []
    with our_box(Load(num_streams=NUM_CHOICES, context_tokens=2048)) as door:
        for turn in range(num_rounds):
            salts = range(100 * turn, 100 * turn + NUM_CHOICES)
            together.append(_answer_rate(door, [_choice_body(50 + salts[0], NUM_CHOICES)]))
            apart.append(_answer_rate(door, [_choice_body(salt, 1) for salt in salts]))
    return [
        Result(
            what="8 choices of one 1,000-token prompt",
            unit="answers/s",
            ours=together,
            rival="8 prompts",
            theirs=apart,
            goal=at_least(3),
        )
    ]


@contextmanager
def _both(load: Load) -> Iterator[dict[str, Door]]:
    with our_box(load) as ours, best_llama_server(load) as theirs:
        yield {"hisar": ours, "llama-server": theirs}


async def _request_rate(door: Door, asked: "range | list[int]") -> float:
    """As many clients as there are slots, each asking the next question when it has an answer."""
    questions = iter(enumerate(asked))
    started = time.perf_counter()

    async def ask() -> None:
        for number, system in questions:
            body = _body(SYSTEM_TOKENS, system, words(QUESTION_WORDS, number), ANSWER_TOKENS)
            await stream(door.port, door.key, body)

    await asyncio.gather(*(ask() for _ in range(NUM_SLOTS)))
    return len(asked) / (time.perf_counter() - started)


async def _first_token_s(door: Door, num_tokens: int, *, number: int) -> float:
    """The question is another one each time."""
    question = f"{time.perf_counter_ns()}: {words(QUESTION_WORDS, number)}"
    answer = await stream(door.port, door.key, _body(num_tokens, number, question, 1))
    return answer.ttft_s


def _answer_rate(door: Door, bodies: list[bytes]) -> float:
    answers = asyncio.run(streams(door.port, door.key, bodies))
    return NUM_CHOICES / max(answer.total_s for answer in answers)


def _choice_body(salt: int, num_choices: int) -> bytes:
    text = f"{salt}. {words(CHOICE_PROMPT_TOKENS, salt)}"
    return chat_body(MODEL, text, ANSWER_TOKENS, n=num_choices, ignore_eos=True)


def _body(num_tokens: int, system: int, question: str, max_tokens: int) -> bytes:
    """About a token a word; the system prompts differ from their first word on."""
    messages = [
        {"role": "system", "content": f"{system}. {words(num_tokens, system)}"},
        {"role": "user", "content": question},
    ]
    return chat_body(MODEL, "", max_tokens, messages=messages, ignore_eos=True)


if __name__ == "__main__":
    run_alone(measure)
