"""The official `openai` client, unchanged."""

from collections.abc import AsyncIterator, Iterator

import openai
import pytest

from tests.walk.running_box import RunningBox


@pytest.fixture
def client(box: RunningBox) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{box.url}/v1", api_key=box.key, max_retries=0) as client:
        yield client


@pytest.fixture
async def async_client(box: RunningBox) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{box.url}/v1", api_key=box.key) as client:
        yield client


def test_a_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": "Merhaba dünya"}]
    )
    assert answer.choices[0].message.content == "Merhaba dünya"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id


def test_a_streamed_chat_with_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="echo",
            messages=[{"role": "user", "content": "hello world"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == "hello world"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def test_completions_whole_and_streamed(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="echo", prompt="once upon", max_tokens=50)
    assert whole.choices[0].text == "once upon"
    stream = client.completions.create(model="echo", prompt="once upon", max_tokens=50, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == "once upon"


def test_models(client: openai.OpenAI) -> None:
    assert "echo" in [model.id for model in client.models.list()]
    assert client.models.retrieve("org/echo-two").id == "org/echo-two"


def test_errors_become_the_clients_own(client: openai.OpenAI, box: RunningBox) -> None:
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nothing")
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(
            model="no such model", messages=[{"role": "user", "content": "hi"}], stream=True
        )
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="echo", messages=[])
    with (
        openai.OpenAI(base_url=f"{box.url}/v1", api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()


async def test_the_asynchronous_client(async_client: openai.AsyncOpenAI) -> None:
    stream = await async_client.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": "hello"}], stream=True
    )
    said = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert "".join(said) == "hello"
