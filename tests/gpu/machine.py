"""The device that is measured, and how: its ceilings, and the time that work on it takes.

On a GPU times come from its own events around replays of a captured graph, so that launches from
Python do not count, with the cache emptied before each. Elsewhere they come from the clock and
only show that the work can be done.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from time import perf_counter
from typing import Final

import torch
from torch import Tensor

from engines.pytorch.device import choose_device, ops_for
from engines.pytorch.ops import Ops
from tests.gpu.rows import Spread, spread

_NUM_REPEATS: Final = 25
_NUM_WARM_UPS: Final = 3
# More than any GPU's second cache holds; a copy of it is long enough to measure the memory by.
_FLUSH_BYTES: Final = 256 << 20
_COPY_BYTES: Final = 4 << 30
_PRODUCT_SIZE: Final = 8192
_SMALL: Final = 16


class Machine:
    """The device at hand. `is_small`: shapes are to be tiny. `folder` is for files to share."""

    def __init__(self, folder: Path, *, is_small: bool) -> None:
        self.folder = folder
        self.is_small = is_small
        self.device = torch.device("cpu") if is_small else choose_device()

    @property
    def has_gpu(self) -> bool:
        """Whether what is measured means anything."""
        return self.device.type == "cuda"

    @property
    def dtype(self) -> torch.dtype:
        """What models are computed in."""
        return torch.bfloat16 if self.has_gpu else torch.float32

    @property
    def ops(self) -> Ops:
        """What models are computed with here."""
        return ops_for(self.device)

    def size(self, full: int, small: int) -> int:
        """One of the two."""
        return small if self.is_small else full

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Random numbers."""
        return torch.randn(shape, device=self.device, dtype=dtype or self.dtype)

    def time(self, *calls: Callable[[], object], num_repeats: int = _NUM_REPEATS) -> Spread:
        """Seconds that one of the calls takes when all are made in turn, each on inputs of its own.

        A graph of them is replayed on a GPU, so they may not wait for it.
        """
        if not self.has_gpu:
            return spread([_clocked(calls) / len(calls) for _ in range(2)])
        replay = self.capture(lambda: [call() for call in calls])
        other = torch.zeros(_FLUSH_BYTES // 4, device=self.device)
        times = []
        for _ in range(_NUM_WARM_UPS + num_repeats):
            other.sum()  # read, not written: what is to be written back would count as ours
            times.append(_between_events(replay) / len(calls))
        return spread(times[_NUM_WARM_UPS:])

    def time_launched(self, call: Callable[[], object], num_repeats: int = _NUM_REPEATS) -> Spread:
        """Seconds of a call that launches its work one by one, as it is or waiting in between."""
        if not self.has_gpu:
            return spread([_clocked([call]) for _ in range(2)])
        times = [_between_events(call) for _ in range(_NUM_WARM_UPS + num_repeats)]
        return spread(times[_NUM_WARM_UPS:])

    def capture(self, call: Callable[[], object]) -> Callable[[], object]:
        """The call as a graph that can be replayed; the call itself where there are none."""
        if not self.has_gpu:
            return call
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph.replay

    @cached_property
    def copying(self) -> Spread:
        """Bytes read and written a second by a large copy on the device."""
        source = torch.randint(
            0, 256, (self.size(_COPY_BYTES, 1 << 16),), dtype=torch.uint8, device=self.device
        )
        target = torch.empty_like(source)
        took = self.time(lambda: target.copy_(source))
        moved = 2 * source.nbytes
        return Spread(moved / took.middle, moved / took.high, moved / took.low)

    @property
    def bandwidth(self) -> float:
        """The median of `copying`."""
        return self.copying.middle

    @cached_property
    def multiplying(self) -> Spread:
        """Operations a second of a large product of random numbers."""
        size = self.size(_PRODUCT_SIZE, _SMALL)
        left, right = self.normal(size, size), self.normal(size, size)
        took = self.time(lambda: left @ right)
        done = 2.0 * size**3
        return Spread(done / took.middle, done / took.high, done / took.low)

    def floor_s(self, num_bytes: float, num_operations: float = 0.0) -> float:
        """The least time that so many bytes moved and operations done can take."""
        by_rate = num_operations / self.multiplying.middle if num_operations else 0.0
        return max(num_bytes / self.bandwidth, by_rate)

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.has_gpu:
            torch.cuda.synchronize()


def _between_events(call: Callable[[], object]) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000


def _clocked(calls: Sequence[Callable[[], object]]) -> float:
    began_at = perf_counter()
    for call in calls:
        call()
    return perf_counter() - began_at
