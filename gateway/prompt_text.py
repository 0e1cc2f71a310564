"""Every text of a prompt that a model may come to read."""

from collections.abc import Iterator

from appliance.generation import ChatPrompt, Message, Prompt, TextPrompt


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
