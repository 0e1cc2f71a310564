"""Prompts are tokenised beside the loop, and whatever happens there, an answer comes."""

import threading
from collections.abc import Iterator
from queue import SimpleQueue

from appliance.errors import EngineError, RequestError
from appliance.generation import (
    ChatPrompt,
    GenerationRequest,
    Message,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from engines.echo.tokenizer import EchoTokenizer
from engines.intake import Encoded, Intake
from engines.prompting import PromptEncoder, start_prompt_encoder

DEADLINE_S = 20.0


class StubbornTokenizer(EchoTokenizer):
    """A tokenizer that waits until it may go on, and breaks on one text."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()

    def encode(self, text: str, *, markers: bool) -> list[int]:
        if text == "slow":
            assert self.may_go_on.wait(DEADLINE_S)
        if text == "breaks":
            raise ValueError(text)
        return super().encode(text, markers=markers)


def request(prompt: Prompt) -> GenerationRequest:
    return GenerationRequest(id="r", model="m", prompts=(prompt,))


def test_a_short_prompt_does_not_wait_behind_a_long_one() -> None:
    tokenizer = StubbornTokenizer()
    encoded: SimpleQueue[Encoded] = SimpleQueue()
    intake = Intake(PromptEncoder(tokenizer, None), encoded.put)
    slow, quick = request(TextPrompt(text="slow")), request(TextPrompt(text="quick"))
    intake.submit(slow, lambda: True)
    intake.submit(quick, lambda: True)
    assert encoded.get(timeout=DEADLINE_S).request is quick
    tokenizer.may_go_on.set()
    assert encoded.get(timeout=DEADLINE_S).request is slow
    intake.close()


class EndlessTokenizer(EchoTokenizer):
    """Never done with a text; says when it has begun."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def encode_parts(self, text: str, *, markers: bool) -> Iterator[list[int]]:
        while True:
            self.has_begun.set()
            yield self.encode(text, markers=markers)


def test_a_prompt_that_is_wanted_no_more_is_given_up_midway() -> None:
    """ggml-org/llama.cpp#24496: a client that has left leaves no work behind."""
    tokenizer = EndlessTokenizer()
    encoded: SimpleQueue[Encoded] = SimpleQueue()
    intake = Intake(start_prompt_encoder(tokenizer), encoded.put)
    wanted = threading.Event()
    wanted.set()
    intake.submit(
        request(ChatPrompt(messages=(Message(role="user", content="hi"),))), wanted.is_set
    )
    assert tokenizer.has_begun.wait(DEADLINE_S)
    wanted.clear()
    error = encoded.get(timeout=DEADLINE_S).error
    assert isinstance(error, EngineError)
    assert error.code == "request.cancelled"
    intake.close()


def test_a_prompt_that_cannot_be_encoded_is_an_error_that_quotes_nothing() -> None:
    intake = Intake(PromptEncoder(StubbornTokenizer(), None), lambda _: None)
    broken = intake.encode(request(TextPrompt(text="breaks"))).error
    assert isinstance(broken, EngineError)
    assert broken.code == "engine.row_failed"
    assert "breaks" not in broken.message
    empty = intake.encode(request(TokenPrompt(token_ids=()))).error
    assert isinstance(empty, RequestError)
    assert empty.code == "request.prompt_empty"
    intake.close()
