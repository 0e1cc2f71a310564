"""Which sequences had better wait a little: another is computing what they begin with.

Admitted at once, prompts that came in together and begin the same way would all compute that
beginning. Waiting for the first of them costs less and gives them all of it.
"""

from collections.abc import Iterable
from typing import Final

from engines.prefix_cache import shared_length
from engines.sequence import Sequence, SequenceState

# Less than this is computed about as fast as it is waited for.
MIN_AWAITED_TOKENS: Final = 64


def awaits_another(sequence: Sequence, running: Iterable[Sequence]) -> bool:
    """Whether a waiting sequence had better not be admitted now.

    What it waits for is noted in it, so that asking again takes no time.
    """
    return (
        _awaits_leader(sequence)
        or _awaits_beginning(sequence)
        or any(_computes_beginning(other, sequence) for other in running)
    )


def _awaits_leader(sequence: Sequence) -> bool:
    """Another choice of the same prompt is computing it."""
    leader = sequence.leader
    return (
        leader is not None
        and leader.state is not SequenceState.FINISHED
        and leader.num_computed < leader.num_prompt_tokens
    )


def _awaits_beginning(sequence: Sequence) -> bool:
    """What was found worth waiting for is still being computed."""
    other = sequence.awaited
    return (
        other is not None
        and other.state is SequenceState.RUNNING
        and other.num_computed < sequence.num_awaited
    )


def _computes_beginning(other: Sequence, sequence: Sequence) -> bool:
    """Whether a running sequence has much of the other's beginning still to compute; notes it."""
    if not other.is_prefilling or other.cache_salt != sequence.cache_salt:
        return False
    num_shared = shared_length(other.token_ids, sequence.token_ids)
    if num_shared - other.num_computed < MIN_AWAITED_TOKENS:
        return False
    sequence.awaited, sequence.num_awaited = other, num_shared
    return True
