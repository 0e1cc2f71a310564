"""Pure computing on data that a stranger sends: long data leaves the event loop for a thread."""

import asyncio
from collections.abc import Callable, Sized
from typing import TypeVar

T = TypeVar("T", bound=Sized)
R = TypeVar("R")


async def compute(work: Callable[[T], R], data: T, long: int) -> R:
    """`work(data)`, in a thread where the data is longer than `long`."""
    if len(data) <= long:
        return work(data)
    return await asyncio.to_thread(work, data)
