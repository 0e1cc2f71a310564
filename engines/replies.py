"""What a model's tokenizer has to say to a question: all of the answer, or the tokens to embed."""

from typing import Final

from msgspec import Struct

from appliance.embedding import EmbeddingInput, EmbeddingRequest
from appliance.errors import EngineError, HisarError, RequestError
from appliance.generation import ChatPrompt, TextPrompt
from appliance.tokens import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest
from engines.prompting import PromptEncoder
from engines.protocol import MAX_FRAME_BYTES, Answer, Ask, ModelFacts, Refused
from engines.refusals import to_refused
from engines.vocabulary import Vocabulary

_FLOAT_BYTES: Final = 4
# What MessagePack puts around a vector, and more.
_VECTOR_SPARE_BYTES: Final = 16


class ToEmbed(Struct, frozen=True, kw_only=True):
    """The tokens of each input of an EmbeddingRequest."""

    call_id: int
    inputs: list[list[int]]


class Replies:
    """Answers about one model. Blocking; safe to call from several threads.

    `max_input_tokens` is the longest input that can be embedded, 0 where none can.
    """

    def __init__(self, encoder: PromptEncoder, facts: ModelFacts, max_input_tokens: int) -> None:
        self._encoder = encoder
        self._facts = facts
        self._max_input_tokens = max_input_tokens
        self._vocabulary = Vocabulary(encoder.tokenizer)

    def reply(self, ask: Ask) -> Answer | ToEmbed | Refused:
        """What there is to say, or a refusal."""
        question = ask.question
        try:
            if isinstance(question, EmbeddingRequest):
                return ToEmbed(call_id=ask.call_id, inputs=self._to_embed(question))
            if isinstance(question, TokenizeRequest):
                return Answer(call_id=ask.call_id, reply=self._tokenize(question))
            return Answer(call_id=ask.call_id, reply=self._detokenize(question))
        except HisarError as error:
            return to_refused(ask.call_id, error)
        except Exception as error:  # noqa: BLE001 - a thread's outermost frame: the call must end
            name = type(error).__name__
            failure = EngineError("engine.row_failed", f"the question failed: {name}")
            return to_refused(ask.call_id, failure)

    def _tokenize(self, request: TokenizeRequest) -> Tokenized:
        """The very tokens that a generation (or an embedding) of this prompt would see."""
        prompt = request.prompt
        if isinstance(prompt, ChatPrompt):
            token_ids = self._encoder.encode(prompt).token_ids
        elif not request.adds_special_tokens:
            token_ids = self._encoder.tokenizer.encode(prompt.text, markers=False)
        elif self._facts.generates:
            token_ids = self._encoder.encode_text(prompt.text)
        else:
            token_ids = self._encoder.encode_document(prompt.text)
        return Tokenized(token_ids=tuple(token_ids), context_tokens=self._facts.context_tokens)

    def _detokenize(self, request: DetokenizeRequest) -> Detokenized:
        """The text of all tokens, control tokens by the names they go by."""
        self._encoder.check_range(request.token_ids, param="tokens")
        control = {token_id: text for text, token_id in self._vocabulary.control_ids.items()}
        piece = self._vocabulary.tokenizer.piece
        pieces = [
            piece(token_id) or control.get(token_id, "").encode() for token_id in request.token_ids
        ]
        return Detokenized(text=b"".join(pieces).decode(errors="replace"))

    def _to_embed(self, request: EmbeddingRequest) -> list[list[int]]:
        size = self._facts.embedding_size
        if not size:
            raise RequestError(
                "request.model_cannot_embed",
                f"the model {self._facts.model!r} makes no embeddings",
                status=400,
                param="model",
            )
        if request.dimensions not in (None, size):
            raise RequestError(
                "request.invalid_parameter",
                f"vectors of this model have {size} numbers and cannot be cut",
                status=400,
                param="dimensions",
            )
        max_inputs = MAX_FRAME_BYTES // (size * _FLOAT_BYTES + _VECTOR_SPARE_BYTES)
        if len(request.inputs) > max_inputs:
            raise RequestError(
                "request.invalid_parameter",
                f"expected at most {max_inputs} inputs of this model at once",
                status=400,
                param="input",
            )
        return [self._input_ids(text) for text in request.inputs]

    def _input_ids(self, given: EmbeddingInput) -> list[int]:
        if isinstance(given, TextPrompt):
            token_ids = self._encoder.encode_document(given.text)
        else:
            token_ids = self._encoder.check_range(given.token_ids, param="input")
        if not token_ids:
            raise RequestError(
                "request.prompt_empty", "an input is empty", status=400, param="input"
            )
        if len(token_ids) > self._max_input_tokens:
            raise RequestError(
                "request.context_length_exceeded",
                f"an input has {len(token_ids)} tokens; this model embeds at most"
                f" {self._max_input_tokens} at once",
                status=400,
                param="input",
            )
        return token_ids
