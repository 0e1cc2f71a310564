"""A whole box that serves a Hugging Face folder: what it says is what transformers computes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import transformers
from tokenizers import Tokenizer

from tests.appliance.commands.conftest import Hisar, free_port
from tests.engines.pytorch import tiny_models, tiny_tokenizer

MODEL = "tiny"
CONTEXT_TOKENS = 1024
PROMPT = "The quick brown fox jumps over the lazy dog; 42 times."
MESSAGES: Any = [{"role": "user", "content": "How old are you?"}]
NUM_TOKENS = 24
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "size": {"enum": ["small", "large"]}},
    "required": ["ok", "size"],
    "additionalProperties": False,
}
FIND: Any = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    num_tokens = tiny_tokenizer.save_ascii(folder)
    model = tiny_models.make("qwen3", vocab_size=num_tokens, max_position_embeddings=CONTEXT_TOKENS)
    return tiny_models.save(model, folder, max_shard_size="100KB")


@pytest.fixture(scope="module")
def hisar(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Hisar:
    hisar = Hisar(tmp_path_factory.mktemp("home"))
    (hisar.home / "config.toml").write_text("[engine]\nnum_slots = 4\n", encoding="utf-8")
    imported = hisar("models", "import", str(folder), "--name", MODEL)
    assert imported.returncode == 0, imported.stderr
    return hisar


@pytest.fixture(scope="module")
def client(hisar: Hisar) -> Iterator[openai.OpenAI]:
    port = free_port()
    with hisar.start("up", "--model", MODEL, "--port", str(port), "--json") as box:
        assert box.stdout is not None
        assert "ready" in box.stdout.readline()
        key = (hisar.home / "keys" / "local.key").read_text().strip()
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key) as client:
            yield client
        box.terminate()


def complete(client: openai.OpenAI, **more: Any) -> Any:
    fields = {"model": MODEL, "prompt": PROMPT, "max_tokens": NUM_TOKENS, "temperature": 0}
    return client.completions.create(**{**fields, **more})


def test_it_says_what_transformers_does(client: openai.OpenAI, folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    token_ids = tokenizer.encode(PROMPT).ids
    for _ in range(NUM_TOKENS):
        token_ids.append(int(tiny_models.logits_of(model, token_ids)[-1].argmax()))
    logprobs = tiny_models.logits_of(model, token_ids).log_softmax(-1)

    told = complete(client, logprobs=2, echo=True).choices[0].logprobs
    assert told.tokens == [tokenizer.decode([number]) for number in token_ids]
    assert told.token_logprobs[0] is None
    expected = [logprobs[at, number].item() for at, number in enumerate(token_ids[1:])]
    assert told.token_logprobs[1:] == pytest.approx(expected, abs=1e-4)


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    whole = complete(client)
    chunks = list(complete(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "length"


def test_it_stops_where_it_shall(client: openai.OpenAI) -> None:
    """vllm#3574: the start of a stop text was sent."""
    text = complete(client).choices[0].text
    stop = text[7:10]
    stopped = complete(client, stop=stop)
    assert stopped.choices[0].text == text[: text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"
    streamed = complete(client, stop=stop, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == stopped.choices[0].text


def test_choices_differ_and_come_again(client: openai.OpenAI) -> None:
    """vllm#10852: n choices of one seed were equal."""
    first, again = (complete(client, n=3, temperature=1, seed=5) for _ in range(2))
    texts = [choice.text for choice in first.choices]
    assert len(set(texts)) == 3
    assert [choice.text for choice in again.choices] == texts
    assert again.usage.prompt_tokens_details.cached_tokens > 0


def test_it_is_held_to_schemas_and_calls(client: openai.OpenAI) -> None:
    held = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    )
    called = client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        tools=[FIND],
        tool_choice="required",
        parallel_tool_calls=False,
    )
    assert set(json.loads(held.choices[0].message.content)) == {"ok", "size"}
    assert called.choices[0].finish_reason == "tool_calls"
    (call,) = called.choices[0].message.tool_calls
    assert set(json.loads(call.function.arguments)) == {"ok", "size"}


@pytest.mark.parametrize("prompt", ["a" * CONTEXT_TOKENS, [5, 100], [-1], [""]])
def test_prompts_that_cannot_be_are_refused(client: openai.OpenAI, prompt: Any) -> None:
    """ollama#4967: a prompt was cut in silence; vllm#7283: an empty one ended the engine."""
    with pytest.raises(openai.BadRequestError):
        complete(client, prompt=prompt)


def test_an_answer_ends_with_the_context(client: openai.OpenAI) -> None:
    answer = complete(
        client, prompt="a" * (CONTEXT_TOKENS - 4), max_tokens=100, extra_body={"ignore_eos": True}
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.total_tokens == CONTEXT_TOKENS


def test_what_it_takes_is_known(hisar: Hisar) -> None:
    found = hisar.json("fit", MODEL)
    assert found["context_tokens"] == CONTEXT_TOKENS
    assert found["fits"]
    assert found["weights_bytes"] > 0
