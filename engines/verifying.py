"""Which drafted tokens are taken: those that would have been chosen anyway, one after the other.

Each row is sampled as if it were the only one, with the sequence, and its grammar, as they are once
the drafts before it are part of it. So the tokens, their logprobs and their penalties are those
of a run without drafts, at any temperature.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from engines.constraint import ConstraintError
from engines.runner import Chunk, RowError, Sampled
from engines.sequence import Sequence

_Row = TypeVar("_Row")


def verify(
    chunk: Chunk, rows: Iterable[_Row], choose: Callable[[Sequence, _Row], Sampled | RowError]
) -> tuple[Sampled, ...] | RowError:
    """The tokens that follow: as many of the chunk's drafts as are right, and one more.

    `rows` are those of its last known token and of each draft. The sequence is left as it was. A
    row that fails after others did not is left out: the next step will meet it again.
    """
    sequence = chunk.sequence
    num_known = len(sequence.token_ids)
    taken: list[Sampled] = []
    try:
        for row, draft in zip(rows, (*chunk.drafts, None), strict=True):
            answer = choose(sequence, row)
            if isinstance(answer, RowError):
                return tuple(taken) or answer
            taken.append(answer)
            if answer.token_id != draft or not _goes_on(sequence, draft):
                break
            sequence.token_ids.append(draft)
    finally:
        num_added = len(sequence.token_ids) - num_known
        if num_added:
            del sequence.token_ids[num_known:]
            if sequence.constraint is not None:
                sequence.constraint.rollback(num_added)
    return tuple(taken)


def _goes_on(sequence: Sequence, draft: int) -> bool:
    """Whether the grammar, if there is one, takes the draft in and wants more after it."""
    constraint = sequence.constraint
    if constraint is None:
        return True
    try:
        constraint.accept(draft)
    except ConstraintError:
        return False
    if constraint.is_complete:
        constraint.rollback(1)
        return False
    return True
