"""One part in a process of its own, where what goes wrong on a device stays, and its memory.

It is forked, so what is imported need not be again; nothing may have touched the device before.
"""

import multiprocessing
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec
from msgspec import Struct

from tests.gpu.machine import Machine
from tests.gpu.rows import NO_GPU, Row, broken, not_measured

_FORK: Final = multiprocessing.get_context("fork")
_END_S: Final = 5.0


class Part(Struct, frozen=True, kw_only=True):
    """Some rows, and how long all of them may take."""

    name: str
    measure: Callable[[Machine], Iterator[Row]]
    budget_s: float


def run_part(part: Part, folder: Path, *, is_small: bool, most_s: float) -> Iterator[Row]:
    """Its rows as they come; one that says what happened where it fails or takes too long."""
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_measure, args=(sender, part, folder, is_small))
    process.start()
    sender.close()
    ends_at = monotonic() + most_s
    try:
        while receiver.poll(max(0.0, ends_at - monotonic())):
            yield msgspec.json.decode(receiver.recv_bytes(), type=Row)
        yield broken(part.name, f"not done after {most_s:.0f} s")
    except EOFError:
        process.join(_END_S)
        if process.exitcode:
            yield broken(part.name, f"its process ended with {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()


def _measure(sender: Connection, part: Part, folder: Path, is_small: bool) -> None:
    try:
        for row in _rows(part, Machine(folder, is_small=is_small)):
            sender.send_bytes(msgspec.json.encode(row))
    except Exception as error:  # noqa: BLE001  # one part's failure is a row, and the next part runs
        traceback.print_exc(file=sys.stderr)
        first_line = str(error).partition("\n")[0]
        sender.send_bytes(
            msgspec.json.encode(broken(part.name, f"{type(error).__name__}: {first_line}"))
        )
    sender.close()


def _rows(part: Part, machine: Machine) -> Iterator[Row]:
    if machine.has_gpu or machine.is_small:
        return part.measure(machine)
    return iter([not_measured(part.name, NO_GPU)])
