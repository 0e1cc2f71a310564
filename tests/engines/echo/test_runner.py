"""What the echo engine answers."""

from pathlib import Path

import pytest

from engines.echo.runner import find_answer
from engines.echo.tokenizer import EchoTokenizer
from engines.runner import RUNNERS, RunnerOptions


def answer_to(prompt: str) -> str:
    tokenizer = EchoTokenizer()
    answer = find_answer(tokenizer.encode(prompt, markers=True))
    return b"".join(map(tokenizer.piece, answer)).decode()


def turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("<|begin|>plain text", "plain text"),
        ("no begin", "no begin"),
        ("<|begin|>", ""),
        ("<|begin|>" + turn("system", "s") + turn("user", "hi") + "<|im_start|>assistant\n", "hi"),
        (turn("user", "one") + turn("assistant", "two") + turn("user", "ğ\n"), "ğ\n"),
        (turn("user", "asked") + turn("tool", "result") + "<|im_start|>assistant\n", "asked"),
        (turn("user", ""), ""),
        ("<|im_start|>user\nwithout an end", "without an end"),
    ],
)
def test_the_last_user_turn_is_echoed_or_else_the_whole_prompt(prompt: str, answer: str) -> None:
    assert answer_to(prompt) == answer


def test_options_give_the_size_of_the_pool() -> None:
    options = RunnerOptions(model="m", path=Path(), context_tokens=100, num_slots=3, step_tokens=7)
    runner = RUNNERS["echo"](options)
    assert (runner.facts.model, runner.facts.runner) == ("m", "echo")
    assert (runner.facts.context_tokens, runner.facts.num_slots) == (100, 3)
    assert runner.kv.total_tokens >= 300
    assert runner.step_tokens == 7
    runner.close()
