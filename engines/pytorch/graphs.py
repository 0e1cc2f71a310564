"""Steps that only decode, captured once and replayed: hundreds of kernels for one launch.

There is a graph for some numbers of sequences; a step takes the next larger one, padded. Inputs
are read, and logits written, where they were when it was captured.
"""

from bisect import bisect_left
from collections.abc import Callable

import torch
from torch import Tensor

from engines.pytorch.step_inputs import StepInputs


def graph_sizes(most: int) -> list[int]:
    """Numbers of sequences to capture graphs for: close together where padding costs most."""
    sizes = [1, 2, 4, *range(8, 64, 8), *range(64, most + 1, 16)]
    return [size for size in sizes if size < most] + [most]


class DecodeGraphs:
    """Graphs for up to `most` sequences, the largest captured first: the others fit its memory.

    `inputs_for` answers inputs of so many padding rows, in tensors that never move.
    """

    def __init__(
        self,
        forward: Callable[[StepInputs], Tensor],
        inputs_for: Callable[[int], StepInputs],
        most: int,
    ) -> None:
        self._sizes = graph_sizes(most)
        self._captured: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        pool = torch.cuda.graph_pool_handle()
        for size in reversed(self._sizes):
            inputs = inputs_for(size)
            _warm_up(forward, inputs)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                logits = forward(inputs)
            self._captured[size] = (graph, logits)

    def size_for(self, num_sequences: int) -> int | None:
        """How many rows a step of so many is padded to; None: there is no such graph."""
        at = bisect_left(self._sizes, num_sequences)
        return self._sizes[at] if at < len(self._sizes) else None

    def replay(self, size: int) -> Tensor:
        """The logits of the inputs as they are now; overwritten by the next replay."""
        graph, logits = self._captured[size]
        graph.replay()
        return logits


def _warm_up(forward: Callable[[StepInputs], Tensor], inputs: StepInputs) -> None:
    """Everything is compiled before a capture, in which nothing may be."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        forward(inputs)
    torch.cuda.current_stream().wait_stream(stream)
