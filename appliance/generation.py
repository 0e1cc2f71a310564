"""What a generation is: the request an engine receives and the events it answers with.

These are the only shapes that cross from a gateway to an engine and back. Foreign shapes (OpenAI's
and others) are translated into these at the edge, in `gateway.wire`.

Life of a request: one `GenerationRequest` makes `len(prompts) * n` choices, numbered
`index = prompt_index * n + sample_index`. Each choice yields any number of `TextDelta` (and
`ToolCallDelta`) and exactly one `ChoiceFinished`; then the request ends in exactly one `Finished`.
Or it ends, at any point, in exactly one `Failed`. Nothing follows the ending. Before all of these
an engine says `Begun`, which is for whoever keeps count and no part of an answer.
"""

from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct


class FinishReason(StrEnum):
    """Why a choice ended. The first four are what a client may see as `finish_reason`."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    CANCELLED = "cancelled"
    ERROR = "error"


Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


class ToolCall(Struct, frozen=True, kw_only=True):
    """One call of a function by the assistant; `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, kw_only=True):
    """One turn of a chat. `content` is None only for an assistant turn that carries tool calls."""

    role: Role
    content: str | None = None
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Tool(Struct, frozen=True, kw_only=True):
    """A function the model may call; `parameters` is the JSON text of a JSON Schema object."""

    name: str
    description: str = ""
    parameters: str = '{"type":"object"}'
    strict: bool = False


class ToolChoice(Struct, frozen=True, kw_only=True):
    """Whether tools may or must be called; `name` is the one function that must be called."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""


class ChatPrompt(Struct, frozen=True, kw_only=True, tag="chat"):
    """A conversation to be rendered by the model's own chat template."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel_tool_calls: bool = True


class TextPrompt(Struct, frozen=True, kw_only=True, tag="text"):
    """Plain text, tokenised as it stands: no template, control markers stay text."""

    text: str


class TokenPrompt(Struct, frozen=True, kw_only=True, tag="tokens"):
    """Token ids of the model's own vocabulary; refused when one lies outside it."""

    token_ids: tuple[int, ...]


Prompt: TypeAlias = ChatPrompt | TextPrompt | TokenPrompt


class OutputFormat(Struct, frozen=True, kw_only=True):
    """What the answer must look like: any JSON object, or what `text` describes.

    `text` is the JSON text of a schema, a regular expression, or a grammar in Lark syntax.
    """

    kind: Literal["json_object", "json_schema", "regex", "grammar"]
    text: str = ""


class SamplingParams(Struct, frozen=True, kw_only=True):
    """How the next token is chosen. `temperature` 0 is argmax. `top_k` 0 means no limit.

    Order of application: logit_bias, penalties, temperature, top_k, top_p, min_p.
    `seed` None lets the engine choose one.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: bool = False
    num_top_logprobs: int = 0
    repetition_penalty: float = 1.0


class StopConditions(Struct, frozen=True, kw_only=True):
    """When a choice ends. `max_tokens` None means: as many as the context still holds."""

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    ignores_eos: bool = False


class GenerationRequest(Struct, frozen=True, kw_only=True):
    """Everything an engine needs to know of a request.

    `cache_salt` is derived by the gateway from the authenticated tenant and never from the body:
    two requests share cached prefixes only when their salts are equal.
    """

    id: str
    model: str
    prompts: tuple[Prompt, ...]
    sampling: SamplingParams = SamplingParams()
    stopping: StopConditions = StopConditions()
    n: int = 1
    cache_salt: bytes = b""
    priority: int = 0
    output_format: OutputFormat | None = None
    echoes_prompt: bool = False

    @property
    def num_choices(self) -> int:
        """How many choices this request asks for."""
        return len(self.prompts) * self.n

    @property
    def scores_prompt(self) -> bool:
        """Whether the logprobs of the prompts' own tokens are asked for."""
        return self.echoes_prompt and self.sampling.logprobs


class TokenLogprob(Struct, frozen=True, kw_only=True):
    """One token with its natural-log probability under the raw (untempered) distribution.

    `logprob` is NaN for a token that nothing stands before: the first of an echoed prompt.
    """

    token: str
    token_bytes: bytes
    logprob: float


class ChosenLogprob(Struct, frozen=True, kw_only=True):
    """The chosen token's logprob and the `num_top_logprobs` likeliest tokens at that position."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()


class Usage(Struct, frozen=True, kw_only=True):
    """What a request consumed. A prompt counts once, however many choices were drawn from it."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Timings(Struct, frozen=True, kw_only=True):
    """Where the engine spent the time, in seconds: waiting, computing the prompt, decoding."""

    queue_s: float = 0.0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class Begun(Struct, frozen=True, kw_only=True, tag="begun"):
    """The prompts are read, each counted once; who is cut off knows what that alone has used."""

    prompt_tokens: int


class TextDelta(Struct, frozen=True, kw_only=True, tag="text"):
    """New text of one choice. `num_tokens` is how many tokens were sampled since the last delta."""

    index: int
    text: str
    num_tokens: int = 1
    logprobs: tuple[ChosenLogprob, ...] = ()
    channel: Literal["content", "reasoning"] = "content"


class ToolCallDelta(Struct, frozen=True, kw_only=True, tag="tool_call"):
    """A piece of one tool call; the pieces of `arguments` concatenate to the whole.

    `num_tokens` is how many tokens were sampled since the last delta.
    """

    index: int
    call_index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    num_tokens: int = 1


class ChoiceFinished(Struct, frozen=True, kw_only=True, tag="choice_finished"):
    """One choice is complete. `stop` is the stop string that ended it, if one did."""

    index: int
    finish_reason: FinishReason
    stop: str | None = None


class Finished(Struct, frozen=True, kw_only=True, tag="finished"):
    """The request is complete: the last event of a request that did not fail."""

    usage: Usage
    timings: Timings = Timings()


class Failed(Struct, frozen=True, kw_only=True, tag="failed"):
    """The request ended early: the last event. `code` is a stable code of `appliance.errors`.

    `usage` is what had been consumed so far. `retry_after_s` is set where trying again can help,
    `param` where a field of the request is at fault, by its name in OpenAI's chat completions.
    """

    code: str
    message: str
    usage: Usage = Usage()
    timings: Timings = Timings()
    retry_after_s: float | None = None
    param: str | None = None


GenerationEvent: TypeAlias = TextDelta | ToolCallDelta | ChoiceFinished | Finished | Failed
EngineEvent: TypeAlias = Begun | GenerationEvent
