"""Which tokens may follow in a sequence: the one question a runner asks before it samples.

A grammar allows some; ids withheld (the end, before `min_tokens`) are taken from those, unless
nothing would be left. The answer goes over the logits before anything is cut off from them.
"""

from typing import TYPE_CHECKING

from engines.constraint import ConstraintError
from engines.runner import RowError
from engines.sequence import Sequence

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def allowed_tokens(
    sequence: Sequence, vocabulary_size: int
) -> "NDArray[np.bool_] | RowError | None":
    """A flag for each token id; None where all may follow (most sequences, at no cost)."""
    if sequence.constraint is None and not sequence.withheld:
        return None
    import numpy as np

    if sequence.constraint is None:
        return _without_withheld(sequence, np.ones(vocabulary_size, np.bool_))
    try:
        allowed = sequence.constraint.allowed()
    except ConstraintError as error:
        return RowError(code="engine.row_failed", message=str(error))
    return _without_withheld(sequence, allowed)


def withheld_ids(sequence: Sequence) -> list[int]:
    """The tokens that are not to follow yet."""
    num_output_tokens = sequence.num_output_tokens
    return [
        token_id
        for withheld in sequence.withheld
        if num_output_tokens < withheld.until_tokens
        for token_id in withheld.token_ids
    ]


def _without_withheld(sequence: Sequence, allowed: "NDArray[np.bool_]") -> "NDArray[np.bool_]":
    token_ids = withheld_ids(sequence)
    if not token_ids:
        return allowed
    fewer = allowed.copy()
    fewer[token_ids] = False
    return fewer if fewer.any() else allowed
