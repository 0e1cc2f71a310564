"""The told side of one choice: its tokens become deltas, and it is decided when they end."""

import math
import secrets
from typing import Final, Literal, TypeAlias

from appliance.generation import (
    ChosenLogprob,
    FinishReason,
    StopConditions,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
)
from engines.answer_reader import Piece, Thought, read_answer
from engines.detokenize import Detokenizer
from engines.prepared import Prepared
from engines.runner import Logprob, Sampled, Tokenizer
from engines.sequence import Sequence
from engines.tool_calls.reader import CallPiece

Delta: TypeAlias = TextDelta | ToolCallDelta
Told: TypeAlias = tuple[list[Delta], FinishReason | None]

_CALL_ID_BYTES: Final = 12


class Choice:
    """One sequence with what has been read of it and not been told yet.

    A delta is told when there is something to show. The `num_tokens` and `logprobs` of a text
    delta are those of all tokens since the last delta, so tokens held back as half a character or
    as a possible stop string come with the text they became part of. The token that ends the turn
    and those of a matched stop string belong to no delta; markup and tool calls count, and have no
    logprobs.

    A choice whose prompt is echoed with logprobs owes that delta until its prompt is computed.
    """

    def __init__(
        self,
        sequence: Sequence,
        tokenizer: Tokenizer,
        stopping: StopConditions,
        prepared: Prepared,
    ) -> None:
        self.sequence = sequence
        self.owes_prompt = sequence.prompt_scores is not None
        self._tokenizer = tokenizer
        self._ignores_eos = stopping.ignores_eos
        self._stop_ids = frozenset(stopping.stop_token_ids)
        self._markup = prepared.markup
        self._detokenizer = Detokenizer()
        self._reader = read_answer(prepared, stopping.stop)
        self._last_kind: type[Piece] | None = None
        self._num_untold = 0
        self._untold_logprobs: list[ChosenLogprob] = []

    @property
    def matched_stop(self) -> str | None:
        """The stop string that ended it, if one did."""
        return self._reader.matched_stop

    def push(self, sampled: Sampled) -> Told:
        """Take in the token just appended to the sequence: what to show, and whether it ended.

        Raises ConstraintError where the choice is held to a grammar that cannot go on.
        """
        if self._ends(sampled.token_id):
            return self._end(self._reader.finish())
        constraint = self.sequence.constraint
        if constraint is not None:
            constraint.accept(sampled.token_id)
        self._num_untold += 1
        if sampled.logprob is not None:
            self._untold_logprobs.append(self._explain(sampled.logprob, sampled.top))
        text = self._text_of(sampled.token_id)
        pieces = self._reader.push(text) if text else []
        if self._reader.is_done:
            return self._end(pieces)
        if constraint is not None and constraint.is_complete:
            return self._end([*pieces, *self._reader.finish()])
        if self.sequence.num_output_tokens < self.sequence.max_tokens:
            return self._tell(pieces), None
        return self._end_by_length(pieces)

    def tell_prompt(self) -> TextDelta:
        """The prompt as text, with the logprobs of its tokens where they were asked for."""
        self.owes_prompt = False
        prompt = self.sequence.token_ids[: self.sequence.num_prompt_tokens]
        text = b"".join(map(self._tokenizer.piece, prompt)).decode(errors="replace")
        logprobs: tuple[ChosenLogprob, ...] = ()
        if self.sequence.prompt_scores is not None:
            first = ChosenLogprob(chosen=self._name(Logprob(token_id=prompt[0], logprob=math.nan)))
            scores = self.sequence.prompt_scores
            rest = (self._explain(s.logprob, s.top) for s in scores if s.logprob is not None)
            logprobs = (first, *rest)
        return TextDelta(index=self.sequence.index, text=text, num_tokens=0, logprobs=logprobs)

    def _ends(self, token_id: int) -> bool:
        if token_id in self._stop_ids:
            return True
        return self._tokenizer.ends_generation(token_id) and not self._ignores_eos

    def _text_of(self, token_id: int) -> str:
        piece = self._tokenizer.piece(token_id)
        if not piece and self._markup:
            return self._markup.get(token_id, "")
        return self._detokenizer.push(piece)

    def _end(self, pieces: list[Piece]) -> Told:
        """The model has ended, or is to: a call that it left unfinished was cut all the same."""
        reason = FinishReason.STOP
        if self._reader.matched_stop is None and self._reader.is_cut:
            reason = FinishReason.LENGTH
        elif self._reader.matched_stop is None and self._reader.num_calls:
            reason = FinishReason.TOOL_CALLS
        return self._tell(pieces), reason

    def _end_by_length(self, pieces: list[Piece]) -> Told:
        deltas = self._tell([*pieces, *self._reader.finish(was_cut=True)])
        if self._reader.matched_stop is not None:
            return deltas, FinishReason.STOP
        if self._reader.is_cut:
            self._untold_logprobs.clear()  # Those of markup, or of a call.
        if self._num_untold:
            deltas.append(self._to_text("", "content"))
        return deltas, FinishReason.LENGTH

    def _tell(self, pieces: list[Piece]) -> list[Delta]:
        return [self._to_delta(piece) for piece in pieces]

    def _to_delta(self, piece: Piece) -> Delta:
        if type(piece) is not self._last_kind:
            self._change_kind(type(piece))
        if isinstance(piece, str):
            return self._to_text(piece, "content")
        if isinstance(piece, Thought):
            return self._to_text(piece.text, "reasoning")
        return self._to_call(piece)

    def _change_kind(self, kind: type[Piece]) -> None:
        """Between two kinds stood markup, whose tokens are no part of what is shown."""
        if self._last_kind is not None:
            del self._untold_logprobs[:-1]
        self._last_kind = kind

    def _to_text(self, text: str, channel: Literal["content", "reasoning"]) -> TextDelta:
        delta = TextDelta(
            index=self.sequence.index,
            text=text,
            num_tokens=self._num_untold,
            logprobs=tuple(self._untold_logprobs),
            channel=channel,
        )
        self._num_untold = 0
        self._untold_logprobs.clear()
        return delta

    def _to_call(self, piece: CallPiece) -> ToolCallDelta:
        delta = ToolCallDelta(
            index=self.sequence.index,
            call_index=piece.call_index,
            id=f"call_{secrets.token_hex(_CALL_ID_BYTES)}" if piece.name else "",
            name=piece.name,
            arguments=piece.arguments,
            num_tokens=self._num_untold,
        )
        self._num_untold = 0
        self._untold_logprobs.clear()
        return delta

    def _explain(self, chosen: Logprob, top: tuple[Logprob, ...]) -> ChosenLogprob:
        return ChosenLogprob(chosen=self._name(chosen), top=tuple(map(self._name, top)))

    def _name(self, logprob: Logprob) -> TokenLogprob:
        piece = self._tokenizer.piece(logprob.token_id)
        # Half a character has no text of its own: its bytes are named, as OpenAI does.
        token = piece.decode(errors="backslashreplace")
        return TokenLogprob(token=token, token_bytes=piece, logprob=logprob.logprob)
