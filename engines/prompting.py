"""How a prompt becomes token ids: rendered by the model's template, with exactly one BOS where the
model wants one, and with control tokens only where the template put them.
"""

import json
from typing import cast

from appliance.errors import RequestError
from appliance.generation import ChatPrompt, Message, Prompt, TextPrompt, ToolCall
from engines.control_text import ControlText, Json
from engines.runner import Tokenizer
from engines.templating import TemplateProcess


class PromptEncoder:
    """Turns prompts of one model into token ids. Blocking; safe to call from several threads."""

    def __init__(self, tokenizer: Tokenizer, template: TemplateProcess | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._control = ControlText(tokenizer.control_markers)

    def encode(self, prompt: Prompt) -> list[int]:
        """The token ids the model shall see, at least one.

        Raises RequestError (400): `request.template_failed`, `request.no_chat_template`,
        `request.token_out_of_range`, `request.prompt_empty`.
        """
        if isinstance(prompt, ChatPrompt):
            token_ids = self._encode_chat(prompt)
        elif isinstance(prompt, TextPrompt):
            token_ids = self._bos() + self._tokenizer.encode(prompt.text, markers=False)
        else:
            token_ids = self._check_range(prompt.token_ids)
        if not token_ids:
            raise RequestError(
                "request.prompt_empty", "the prompt is empty", status=400, param="prompt"
            )
        return token_ids

    def close(self) -> None:
        """End the template's process."""
        if self._template is not None:
            self._template.close()

    def _encode_chat(self, prompt: ChatPrompt) -> list[int]:
        if self._template is None:
            raise RequestError(
                "request.no_chat_template",
                "the model has no chat template; it completes text, it does not chat",
                status=400,
                param="model",
            )
        messages, key = self._control.hide([to_template_message(m) for m in prompt.messages])
        rendered = self._template.render(
            {
                "messages": messages,
                "tools": None,
                "documents": None,
                "add_generation_prompt": True,
                "bos_token": self._tokenizer.bos_text,
                "eos_token": self._tokenizer.eos_text,
            }
        )
        bos = [] if self._starts_with_bos(rendered) else self._bos()
        return bos + [
            token_id
            for text, has_markers in self._control.split(rendered, key)
            for token_id in self._tokenizer.encode(text, markers=has_markers)
        ]

    def _starts_with_bos(self, rendered: str) -> bool:
        return bool(self._tokenizer.bos_text) and rendered.startswith(self._tokenizer.bos_text)

    def _bos(self) -> list[int]:
        if not self._tokenizer.adds_bos:
            return []
        return self._tokenizer.encode(self._tokenizer.bos_text, markers=True)

    def _check_range(self, token_ids: tuple[int, ...]) -> list[int]:
        size = self._tokenizer.vocabulary_size
        if any(not 0 <= token_id < size for token_id in token_ids):
            raise RequestError(
                "request.token_out_of_range",
                f"a token id lies outside the vocabulary of {size} tokens",
                status=400,
                param="prompt",
            )
        return list(token_ids)


def start_prompt_encoder(tokenizer: Tokenizer) -> PromptEncoder:
    """A prompt encoder whose template process gets ready in the background."""
    source = tokenizer.chat_template
    return PromptEncoder(tokenizer, TemplateProcess(source) if source is not None else None)


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
