"""The text side of one choice: its tokens become deltas, and it is decided when they end."""

from appliance.generation import (
    ChosenLogprob,
    FinishReason,
    TextDelta,
    TokenLogprob,
)
from engines.detokenize import Detokenizer
from engines.runner import Logprob, Sampled, Tokenizer
from engines.sequence import Sequence
from engines.stopping import StopMatcher


class Choice:
    """One sequence with what has been read of it and not been told yet.

    A delta is told when there is text to show. Its `num_tokens` and `logprobs` are those of all
    tokens since the last one, so tokens held back as half a character or as a possible stop string
    come with the text they became part of. The token that ends the turn and those of a matched
    stop string belong to no delta.
    """

    def __init__(self, sequence: Sequence, tokenizer: Tokenizer, stops: tuple[str, ...]) -> None:
        self.sequence = sequence
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer()
        self._stop_matcher = StopMatcher(stops)
        self._num_untold = 0
        self._untold_logprobs: list[ChosenLogprob] = []

    def push(self, sampled: Sampled) -> tuple[TextDelta | None, FinishReason | None]:
        """Take in the token just appended to the sequence: what to show, and whether it ended."""
        if self._tokenizer.ends_generation(sampled.token_id):
            return self._delta(self._rest()), FinishReason.STOP
        self._num_untold += 1
        if sampled.logprob is not None:
            self._untold_logprobs.append(self._explain(sampled.logprob, sampled.top))
        piece = self._tokenizer.piece(sampled.token_id)
        text = self._stop_matcher.push(self._detokenizer.push(piece))
        if self._stop_matcher.matched:
            return self._delta(text), FinishReason.STOP
        if self.sequence.num_output_tokens < self.sequence.max_tokens:
            return self._delta(text), None
        return self._end_by_length(text)

    def _end_by_length(self, text: str) -> tuple[TextDelta | None, FinishReason]:
        text += self._rest()
        if self._stop_matcher.matched:
            return self._delta(text), FinishReason.STOP
        return self._delta(text, even_without_text=self._num_untold > 0), FinishReason.LENGTH

    def _rest(self) -> str:
        """The text held back, when no token follows."""
        text = self._stop_matcher.push(self._detokenizer.finish())
        return text + self._stop_matcher.finish()

    def _delta(self, text: str, *, even_without_text: bool = False) -> TextDelta | None:
        if not text and not even_without_text:
            return None
        delta = TextDelta(
            index=self.sequence.index,
            text=text,
            num_tokens=self._num_untold,
            logprobs=tuple(self._untold_logprobs),
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
