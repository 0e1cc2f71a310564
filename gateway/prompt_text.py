"""Every text of a request that a model may come to read, or be made to write."""

from collections.abc import Iterator

from appliance.generation import ChatPrompt, Message, Prompt, TextPrompt
from gateway.wire.call import Asked


def texts_in(asked: Asked) -> Iterator[str]:
    """The texts of its prompts, and what describes the form of its answer."""
    for prompt in asked.prompts:
        yield from texts_of(prompt)
    if asked.output_format is not None and asked.output_format.text:
        yield asked.output_format.text


def texts_of(prompt: Prompt) -> Iterator[str]:
    """The texts, empty ones left out; none of a prompt that is token ids."""
    if isinstance(prompt, TextPrompt):
        yield prompt.text
    elif isinstance(prompt, ChatPrompt):
        for message in prompt.messages:
            yield from filter(None, _texts_of_message(message))
        for tool in prompt.tools:
            yield from filter(None, (tool.name, tool.description, tool.parameters))


def _texts_of_message(message: Message) -> Iterator[str]:
    yield message.name or ""
    yield message.content or ""
    for call in message.tool_calls:
        yield call.name
        yield call.arguments
