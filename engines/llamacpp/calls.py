"""Which chunks of a step are computed by one llama_decode, and which by another.

libllama computes a batch in graphs of as many tokens of each slot. Two things follow.

A row alone and rows of one slot together are multiplied by different kernels, and each rounds in
its own way: so single tokens go with single tokens, and no other chunk is put where one token of it
would be left over. What is sampled then does not depend on who else is in the step.

Without flash attention a graph looks at as many cells of every slot as the longest one has. Beside
one of 4,000 tokens, fifteen short ones would cost as much as fifteen long ones: they get a call of
their own where that is cheaper than reading the weights once more.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Final

from engines.runner import Chunk

# llama.cpp looks at so many cells more at a time.
_CELLS: Final = 256


def arrange(chunks: Seq[Chunk], slots: Seq[int], cells_per_call: int) -> list[list[int]]:
    """The numbers of the chunks, call by call, each in the order of their slots.

    `cells_per_call`: as many cells of one row take as long to look at as the weights do to read.
    """
    singles: list[int] = []
    others: list[int] = []
    for number, chunk in enumerate(chunks):
        (singles if chunk.length == 1 and not chunk.drafts else others).append(number)
    calls = _split_by_length(singles, [_num_cells(c) for c in chunks], slots, cells_per_call)
    if others:
        calls += _join_without_leftover(others, [c.length + len(c.drafts) for c in chunks])
    return [sorted(call, key=slots.__getitem__) for call in calls]


def num_runs(slots: Iterable[int]) -> int:
    """How many groups of neighbours the slots form: each is computed in a graph of its own."""
    taken = set(slots)
    return sum(slot - 1 not in taken for slot in taken)


def _num_cells(chunk: Chunk) -> int:
    return -(-(chunk.start + chunk.length) // _CELLS) * _CELLS


def _split_by_length(
    numbers: list[int], cells: Seq[int], slots: Seq[int], cells_per_call: int
) -> list[list[int]]:
    """Cut off the shorter ones as long as a cut saves more than the graphs that it adds."""
    calls: list[list[int]] = []
    left = sorted(numbers, key=cells.__getitem__, reverse=True)
    while left:
        longest = cells[left[0]]
        if (longest - cells[left[-1]]) * len(left) <= cells_per_call:  # the most a cut could save
            return [*calls, left]
        saved = [(longest - cells[number]) * (len(left) - i) for i, number in enumerate(left)]
        most = max(saved)
        cut = saved.index(most)
        ordered = [slots[number] for number in left]
        if most <= cells_per_call * _num_added_graphs(ordered, cut):
            cut = len(left)
        calls.append(left[:cut])
        left = left[cut:]
    return calls


def _num_added_graphs(slots: Seq[int], cut: int) -> int:
    return num_runs(slots[:cut]) + num_runs(slots[cut:]) - num_runs(slots)


def _join_without_leftover(numbers: list[int], lengths: Seq[int]) -> list[list[int]]:
    """Few calls, in none of which a chunk is longer than another by exactly one."""
    calls: list[list[int]] = []
    for number in sorted(numbers, key=lengths.__getitem__):
        fitting = (call for call in calls if lengths[number] - lengths[call[-1]] != 1)
        call = next(fitting, None)
        if call is None:
            calls.append([number])
        else:
            call.append(number)
    return calls
