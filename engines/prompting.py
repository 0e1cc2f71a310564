"""How a prompt becomes token ids: rendered by the model's template, with exactly one BOS where the
model wants one, and with control tokens only where the template put them.
"""

import json
from collections.abc import Callable
from typing import TypeAlias, cast

from appliance.errors import EngineError, RequestError
from appliance.generation import ChatPrompt, Message, Prompt, TextPrompt, ToolCall
from engines.control_text import ControlText, Json
from engines.dialect import Dialect, read_dialect
from engines.grammar_text import to_calls
from engines.prepared import Prepared
from engines.reasoning import THINK_START, Thinking
from engines.runner import Tokenizer
from engines.templating import TemplateProcess
from engines.token_range import check_token_ids
from engines.tool_calls.offering import (
    to_template_tools,
    with_calls_in_words,
    with_template_ids,
    with_tools_in_words,
)

# Whether somebody still waits for what is being made; asked from the thread that makes it.
IsWanted: TypeAlias = Callable[[], bool]


class PromptEncoder:
    """Turns prompts of one model into token ids. Blocking; safe to call from several threads."""

    def __init__(self, tokenizer: Tokenizer, template: TemplateProcess | None) -> None:
        self.tokenizer = tokenizer
        self._template = template
        self._control = ControlText(tokenizer.control_markers)
        self._dialect = read_dialect(tokenizer.chat_template)
        self._markup = _control_ids(tokenizer, self._dialect)

    def encode(self, prompt: Prompt, is_wanted: IsWanted = lambda: True) -> Prepared:
        """The token ids the model shall see, at least one, and how its answer is to be read.

        Raises RequestError (400): `request.template_failed`, `request.no_chat_template`,
        `request.token_out_of_range`, `request.prompt_empty`, `request.invalid_parameter`; and
        EngineError `request.cancelled` soon after the prompt is wanted no more.
        """
        check_wanted(is_wanted)
        if isinstance(prompt, ChatPrompt):
            prepared = self._encode_chat(prompt, is_wanted)
        elif isinstance(prompt, TextPrompt):
            prepared = Prepared(token_ids=self.encode_text(prompt.text))
        else:
            prepared = Prepared(token_ids=self.check_range(prompt.token_ids, param="prompt"))
        if not prepared.token_ids:
            raise RequestError(
                "request.prompt_empty", "the prompt is empty", status=400, param="prompt"
            )
        return prepared

    def encode_text(self, text: str) -> list[int]:
        """Text to be continued."""
        return self._bos() + self.tokenizer.encode(text, markers=False)

    def encode_document(self, text: str) -> list[int]:
        """Text that is whole, to be embedded."""
        return self.encode_text(text) + list(self.tokenizer.closing_ids)

    def check_range(self, token_ids: tuple[int, ...], *, param: str) -> list[int]:
        """The ids, all of them in the vocabulary. Raises RequestError."""
        check_token_ids(token_ids, self.tokenizer.vocabulary_size, param)
        return list(token_ids)

    def close(self) -> None:
        """End the template's process."""
        if self._template is not None:
            self._template.close()

    def _encode_chat(self, prompt: ChatPrompt, is_wanted: IsWanted) -> Prepared:
        if self._template is None:
            raise RequestError(
                "request.no_chat_template",
                "the model has no chat template; it completes text, it does not chat",
                status=400,
                param="model",
            )
        calls = to_calls(prompt, self._dialect.call_format)
        hidden, key = self._control.hide(self._to_variables(prompt, offers_tools=calls is not None))
        fixed: dict[str, Json] = {
            "documents": None,
            "add_generation_prompt": True,
            "bos_token": self.tokenizer.bos_text,
            "eos_token": self.tokenizer.eos_text,
        }
        rendered = self._template.render({**cast("dict[str, Json]", hidden), **fixed})
        token_ids = [] if self._starts_with_bos(rendered) else self._bos()
        for text, has_markers in self._control.split(rendered, key):
            for part in self.tokenizer.encode_parts(text, markers=has_markers):
                check_wanted(is_wanted)
                token_ids += part
        thinking = self._thinking_after(rendered)
        return Prepared(token_ids=token_ids, thinking=thinking, calls=calls, markup=self._markup)

    def _to_variables(self, prompt: ChatPrompt, *, offers_tools: bool) -> Json:
        """What of a template's variables comes from the caller."""
        messages = with_template_ids(prompt.messages, self._dialect.call_format)
        if not self._dialect.renders_calls:
            messages = with_calls_in_words(messages)
        tools: Json = None
        if offers_tools and self._dialect.renders_tools:
            tools = to_template_tools(prompt.tools)
        elif offers_tools:
            messages = with_tools_in_words(messages, prompt.tools)
        return {"messages": [to_template_message(m) for m in messages], "tools": tools}

    def _thinking_after(self, rendered: str) -> Thinking:
        """Whether the answer may begin with thoughts; some templates open the block themselves."""
        if not self._dialect.thinks:
            return "never"
        return "opened" if rendered.rstrip().endswith(THINK_START) else "maybe"

    def _starts_with_bos(self, rendered: str) -> bool:
        return bool(self.tokenizer.bos_text) and rendered.startswith(self.tokenizer.bos_text)

    def _bos(self) -> list[int]:
        if not self.tokenizer.adds_bos:
            return []
        return self.tokenizer.encode(self.tokenizer.bos_text, markers=True)


def check_wanted(is_wanted: IsWanted) -> None:
    """Raise EngineError `request.cancelled` where nobody waits any more."""
    if not is_wanted():
        raise EngineError("request.cancelled", "the request was cancelled")


def start_prompt_encoder(tokenizer: Tokenizer) -> PromptEncoder:
    """A prompt encoder whose template process gets ready in the background."""
    source = tokenizer.chat_template
    return PromptEncoder(tokenizer, TemplateProcess(source) if source is not None else None)


def _control_ids(tokenizer: Tokenizer, dialect: Dialect) -> dict[int, str]:
    """The markup that this vocabulary has as control tokens, which have no text of their own."""
    known = (marker for marker in dialect.markers if marker in tokenizer.control_markers)
    return {tokenizer.encode(marker, markers=True)[0]: marker for marker in known}


def to_template_message(message: Message) -> dict[str, Json]:
    """A message as Hugging Face chat templates expect it: no key whose value would be None."""
    fields: dict[str, Json] = {"role": message.role, "content": message.content or ""}
    if message.name is not None:
        fields["name"] = message.name
    if message.tool_call_id is not None:
        fields["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        fields["tool_calls"] = [_to_template_call(call) for call in message.tool_calls]
    return fields


def _to_template_call(call: ToolCall) -> Json:
    function: Json = {"name": call.name, "arguments": _parse_arguments(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def _parse_arguments(arguments: str) -> Json:
    """Arguments as an object; as they stand where a model did not write one."""
    try:
        parsed = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return cast("Json", parsed) if isinstance(parsed, dict) else arguments
