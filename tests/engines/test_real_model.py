"""Grammars and tool calls with a real model and its vocabulary of 49,152 tokens."""

import json
import math
from collections.abc import Iterator
from random import Random

import jsonschema
import numpy as np
import pytest

from appliance.generation import (
    ChatPrompt,
    FinishReason,
    GenerationRequest,
    Message,
    OutputFormat,
    SamplingParams,
    StopConditions,
    TextPrompt,
    Tool,
    ToolChoice,
)
from engines.grammar import GrammarCompiler
from engines.grammar_text import AnswerShape
from engines.prompting import start_prompt_encoder
from engines.runner import RunnerOptions
from engines.vocabulary import Vocabulary
from tests import small_model
from tests.engines.echo_engine import Engine

pytestmark = pytest.mark.model

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["new", "vip", "ğ"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
CUSTOMER = OutputFormat(kind="json_schema", text=json.dumps(SCHEMA))
FIND = Tool(
    name="find",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"no": {"type": "integer", "minimum": 0, "maximum": 999}},
            "required": ["no"],
            "additionalProperties": False,
        }
    ),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    from engines.llamacpp.runner import start

    options = RunnerOptions(
        model="smollm2", path=small_model.PATH, context_tokens=512, num_slots=4, num_threads=1
    )
    runner = start(options)
    encoder = start_prompt_encoder(runner.tokenizer)
    yield Engine(runner, encoder)
    encoder.close()
    runner.close()


def chat(text: str, *, id: str, **fields: object) -> GenerationRequest:  # noqa: A002
    prompt = ChatPrompt(messages=(Message(role="user", content=text),))
    return GenerationRequest(id=id, model="smollm2", prompts=(prompt,), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("temperature", [0.0, 1.7])
def test_answers_satisfy_their_schema_and_their_neighbour_is_free(
    engine: Engine, temperature: float
) -> None:
    requests = [
        chat(
            "Describe a customer as JSON.",
            id=f"held {temperature} {seed}",
            output_format=CUSTOMER,
            sampling=SamplingParams(temperature=temperature, seed=seed),
        )
        for seed in range(3)
    ]
    free = chat("Hi", id=f"free {temperature}", stopping=StopConditions(max_tokens=5))
    for request in [*requests, free]:
        engine.send(request)
    engine.run()
    for request in requests:
        assert engine.reasons(request.id) == {0: FinishReason.STOP}
        jsonschema.validate(json.loads(engine.text(request.id)), SCHEMA)
    assert engine.text(free.id)


def test_a_named_function_is_called(engine: Engine) -> None:
    prompt = ChatPrompt(
        messages=(Message(role="user", content="Find customer 417."),),
        tools=(FIND,),
        tool_choice=ToolChoice(mode="named", name="find"),
    )
    sampling = SamplingParams(temperature=0.0)
    engine.send(GenerationRequest(id="call", model="smollm2", prompts=(prompt,), sampling=sampling))
    engine.run()
    assert engine.reasons("call") == {0: FinishReason.TOOL_CALLS}
    (call,) = engine.calls("call")
    assert call.name == "find"
    assert set(json.loads(call.arguments)) == {"no"}
    assert engine.text("call") == ""


@pytest.mark.parametrize("seed", range(8))
def test_whatever_tokens_are_liked_the_answer_satisfies_the_schema(
    engine: Engine, seed: int
) -> None:
    tokenizer = engine.runner.tokenizer
    vocabulary = Vocabulary(tokenizer)
    constraint = GrammarCompiler(vocabulary).compile(AnswerShape(output_format=CUSTOMER)).begin()
    liking = np.random.default_rng(seed)
    rng = Random(seed)  # noqa: S311
    written = b""
    while not constraint.is_complete:
        allowed = np.flatnonzero(constraint.allowed())
        assert len(allowed)
        token_id = int(allowed[liking.integers(len(allowed))] if rng.random() < 0.7 else allowed[0])
        constraint.accept(token_id)
        written += tokenizer.piece(token_id)
    jsonschema.validate(json.loads(written), SCHEMA)


def test_choices_of_one_seed_differ_and_can_be_had_again(engine: Engine) -> None:
    """vllm#10852, vllm#39647: n=4 gave four equal answers, or computed the prompt four times."""
    told = []
    for request_id in ("once", "twice"):
        engine.send(
            chat(
                "Tell me a story.",
                id=f"four {request_id}",
                n=4,
                cache_salt=request_id.encode(),
                sampling=SamplingParams(temperature=1.0, seed=5),
                stopping=StopConditions(max_tokens=12),
            )
        )
        num_computed = engine.loop.stats().prompt_tokens
        engine.run()
        prompt_tokens = engine.finished(f"four {request_id}").usage.prompt_tokens
        assert engine.loop.stats().prompt_tokens - num_computed == prompt_tokens
        told.append([engine.text(f"four {request_id}", index) for index in range(4)])
    assert told[0] == told[1]
    assert len(set(told[0])) == 4


def test_no_cut_shows_half_a_character(engine: Engine) -> None:
    """llama.cpp#4036, imp#1310, TensorRT-LLM#2595: U+FFFD where tokens are parts of a character."""
    text = "ğİ聪👩‍👩‍👧‍👦ış"
    written = OutputFormat(kind="regex", text=text)
    num_tokens = len(engine.runner.tokenizer.encode(text, markers=False))
    assert num_tokens > len(text)
    for max_tokens in range(1, num_tokens + 1):
        request_id = f"cut {max_tokens}"
        stopping = StopConditions(max_tokens=max_tokens)
        engine.send(chat("Hi", id=request_id, output_format=written, stopping=stopping))
    engine.run()
    for max_tokens in range(1, num_tokens + 1):
        deltas = engine.deltas(f"cut {max_tokens}")
        assert text.startswith("".join(delta.text for delta in deltas))
        assert sum(delta.num_tokens for delta in deltas) == max_tokens
    assert engine.text(f"cut {num_tokens}") == text


def test_a_prompt_has_the_same_logprobs_each_time(engine: Engine) -> None:
    """vllm#8268, vllm#13105, vllm#42245: the second request got what the cache had left."""
    text = " ".join(["The capital of France is Paris."] * 8)
    told = []
    for request_id in ("once", "again"):
        request = GenerationRequest(
            id=request_id,
            model="smollm2",
            prompts=(TextPrompt(text=text),),
            echoes_prompt=True,
            sampling=SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=2),
            stopping=StopConditions(max_tokens=0),
        )
        engine.send(request)
        engine.run()
        assert engine.finished(request_id).usage.completion_tokens == 0
        told.append(engine.deltas(request_id)[0])
    first, second = told
    assert first.text == second.text == text
    assert len(first.logprobs) == engine.finished("once").usage.prompt_tokens
    assert math.isnan(first.logprobs[0].chosen.logprob)
    assert first.logprobs[1:] == second.logprobs[1:]
    repeated = [entry.chosen.logprob for entry in first.logprobs[-6:]]
    assert all(-1.0 < logprob <= 0.0 for logprob in repeated)
