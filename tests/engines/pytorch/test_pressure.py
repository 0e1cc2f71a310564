"""Little memory and callers who leave: answers stay what they are, and every block comes back."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from appliance.generation import (
    FinishReason,
    GenerationRequest,
    OutputFormat,
    SamplingParams,
    StopConditions,
    TextPrompt,
    TokenPrompt,
)
from engines.prompting import start_prompt_encoder
from engines.protocol import Abort
from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.memory_sizes import Sizes
from engines.pytorch.models import load_model
from engines.pytorch.runner import TorchRunner
from engines.pytorch.tokenizer import load_tokenizer
from engines.runner import RunnerOptions
from tests.engines.echo_engine import Engine
from tests.engines.pytorch import tiny_models, tiny_tokenizer

CONTEXT_TOKENS = 160
ROOMY = Sizes(context_tokens=CONTEXT_TOKENS, num_slots=8, num_blocks=80)
# A sequence may take ten blocks, so eight of them leave no time without pre-emption.
SHORT = Sizes(context_tokens=CONTEXT_TOKENS, num_slots=8, num_blocks=20)
ONE = Sizes(context_tokens=CONTEXT_TOKENS, num_slots=1, num_blocks=10)
SAVING = Sizes(context_tokens=CONTEXT_TOKENS, num_slots=8, num_blocks=10, num_places=60)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    num_tokens = tiny_tokenizer.save_ascii(folder)
    made = tiny_models.make("llama2", vocab_size=num_tokens, max_position_embeddings=CONTEXT_TOKENS)
    return tiny_models.save(made, folder)


@pytest.fixture
def runners(folder: Path) -> Iterator["Runners"]:
    runners = Runners(folder)
    yield runners
    for runner in runners.started:
        runner.close()


class Runners:
    """Runners of the same model, with as much memory as is asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[TorchRunner] = []

    def __call__(self, sizes: Sizes, *, step_tokens: int = 32) -> TorchRunner:
        model = load_model(self.folder, dtype=torch.float32, device=CPU, ops=torch_ops())
        options = RunnerOptions(model="tiny", path=self.folder, step_tokens=step_tokens)
        runner = TorchRunner(model, load_tokenizer(self.folder), sizes, options, CPU)
        self.started.append(runner)
        return runner


def requests(count: int, *, seed: int = 1, max_tokens: int = 40) -> list[GenerationRequest]:
    """Prompts of 1 to 100 tokens, some of which begin alike; every other one is drawn."""
    dice = random.Random(seed)  # noqa: S311
    beginning = tuple(dice.choices(range(90), k=48))
    return [
        GenerationRequest(
            id=str(number),
            model="tiny",
            prompts=(
                TokenPrompt(
                    token_ids=beginning * (number % 3 == 0)
                    + tuple(dice.choices(range(90), k=dice.randint(1, 50)))
                ),
            ),
            sampling=SamplingParams(temperature=float(number % 2), seed=number),
            stopping=StopConditions(max_tokens=max_tokens, ignores_eos=True),
        )
        for number in range(count)
    ]


def answers(runner: TorchRunner, asked: list[GenerationRequest]) -> list[str]:
    engine = Engine(runner)
    for request in asked:
        engine.send(request)
    engine.run()
    assert engine.is_empty()
    for request in asked:
        assert engine.finished(request.id).usage.completion_tokens == 40
    return [engine.text(request.id) for request in asked]


@pytest.mark.parametrize("sizes", [SHORT, ONE, SAVING])
def test_answers_do_not_depend_on_memory(runners: Runners, sizes: Sizes) -> None:
    """vllm#15996: with little memory, requests were pre-empted for ever."""
    asked = requests(12)
    expected = answers(runners(ROOMY), asked)
    runner = runners(sizes)
    for _ in range(2):  # the second time, much is found again
        assert answers(runner, asked) == expected


def test_what_was_saved_is_found_again_by_its_tenant_alone(runners: Runners) -> None:
    """vllm#16016 (CVE-2025-46570)."""
    runner = runners(SAVING)
    engine = Engine(runner)
    prompt = tuple(number % 90 for number in range(100))
    for number, salt in enumerate((b"a", b"other", b"other", b"b", b"a")):
        # The two in between need all blocks.
        ids = prompt if salt in (b"a", b"b") else tuple([number] * 110)
        engine.send(
            GenerationRequest(
                id=str(number),
                model="tiny",
                prompts=(TokenPrompt(token_ids=ids),),
                sampling=SamplingParams(temperature=0.0),
                stopping=StopConditions(max_tokens=8, ignores_eos=True),
                cache_salt=salt,
            )
        )
        engine.run()
        if number == 2:
            assert runner.kv.saved_tokens > 0
    cached = [engine.finished(str(number)).usage.cached_tokens for number in range(5)]
    assert cached == [0, 0, 0, 0, 96]
    assert engine.text("4") == engine.text("3") == engine.text("0")


@pytest.mark.parametrize("sizes", [ROOMY, SHORT, SAVING])
def test_those_who_leave_take_nothing_with_them(runners: Runners, sizes: Sizes) -> None:
    """llama.cpp#24496, ik_llama.cpp#1929: work went on, or another's was ended."""
    asked = requests(30, seed=3)
    expected = answers(runners(ROOMY), asked)
    engine = Engine(runners(sizes, step_tokens=16))
    dice = random.Random(4)  # noqa: S311
    leaving = {request.id for request in asked if dice.random() < 0.5}
    for request in asked:
        engine.send(request)
    staying = [number for number, request in enumerate(asked) if request.id not in leaving]
    while engine.encoded or engine.loop.has_work:
        engine.step()
        if leaving and dice.random() < 0.3:
            engine.loop.receive(Abort(request_id=leaving.pop()))
    assert engine.is_empty()
    assert [engine.text(str(number)) for number in staying] == [expected[n] for n in staying]


def test_one_who_leaves_while_the_prompt_is_computed(runners: Runners) -> None:
    """llama.cpp#13262."""
    engine = Engine(runners(ROOMY, step_tokens=16))
    request = requests(1)[0]
    engine.send(request)
    engine.step()
    engine.step()
    assert engine.loop.stats().kv_used_tokens > 0
    engine.loop.receive(Abort(request_id=request.id))
    engine.run()
    assert engine.is_empty()


@pytest.mark.parametrize("length", [CONTEXT_TOKENS - 1, CONTEXT_TOKENS - 3])
def test_an_answer_ends_with_the_context(runners: Runners, length: int) -> None:
    engine = Engine(runners(ONE), speculates=True)
    engine.send(
        GenerationRequest(
            id="r",
            model="tiny",
            prompts=(TokenPrompt(token_ids=(5, 6) * (length // 2) + (7,) * (length % 2)),),
            sampling=SamplingParams(temperature=0.0),
            stopping=StopConditions(ignores_eos=True),
        )
    )
    engine.run()
    assert engine.reasons("r") == {0: FinishReason.LENGTH}
    assert engine.finished("r").usage.completion_tokens == CONTEXT_TOKENS - length


@pytest.mark.parametrize(
    ("token_ids", "code"),
    [
        ((5,) * CONTEXT_TOKENS, "request.context_length_exceeded"),
        ((5, 100), "request.token_out_of_range"),
        ((-1,), "request.token_out_of_range"),
        ((1 << 62,), "request.token_out_of_range"),
    ],
)
def test_prompts_that_cannot_be(runners: Runners, token_ids: tuple[int, ...], code: str) -> None:
    engine = Engine(runners(ONE))
    prompt = TokenPrompt(token_ids=token_ids)
    engine.send(GenerationRequest(id="r", model="tiny", prompts=(prompt,)))
    engine.run()
    assert engine.failure("r").code == code


def test_guesses_that_a_grammar_forbids_end_no_answer(runners: Runners) -> None:
    """vllm#9423: guessing beside a grammar broke what it held."""
    runner = runners(ROOMY)
    encoder = start_prompt_encoder(runner.tokenizer)
    engine = Engine(runner, encoder, speculates=True)
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 3, "maxItems": 3}
    for number in range(8):
        request = GenerationRequest(
            id=str(number),
            model="tiny",
            prompts=(TextPrompt(text="[true, , false  , true, ]" * 2),),
            output_format=OutputFormat(kind="json_schema", text=json.dumps(schema)),
        )
        engine.send(request)
        engine.run()
        assert len(json.loads(engine.text(str(number)))) == 3
    encoder.close()
