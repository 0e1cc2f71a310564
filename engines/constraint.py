"""How one choice is held to a grammar: which tokens may come next, and where the grammar stands."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from llguidance import LLMatcher
    from numpy.typing import NDArray


class ConstraintError(Exception):
    """The grammar can go no further; only the choice held to it ends. Quotes nothing."""


class Constraint:
    """A grammar's matcher with its position in the tokens of one choice."""

    def __init__(self, matcher: "LLMatcher", vocabulary_size: int) -> None:
        self._matcher = matcher
        self._vocabulary_size = vocabulary_size

    @property
    def is_complete(self) -> bool:
        """Nothing but the end may follow."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def allowed(self) -> "NDArray[np.bool_]":
        """For each token of the vocabulary whether it may come next. Raises ConstraintError."""
        import numpy as np

        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, count=self._vocabulary_size, bitorder="little").view(np.bool_)

    def accept(self, token_id: int) -> None:
        """Take in the token that was chosen. Raises ConstraintError where it was not allowed."""
        self._matcher.consume_token(token_id)
        self._check()

    def rollback(self, num_tokens: int) -> None:
        """Forget the last tokens that were accepted, as after a draft that was not taken."""
        self._matcher.rollback(num_tokens)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(f"the grammar stopped: {self._matcher.stop_reason()}")
