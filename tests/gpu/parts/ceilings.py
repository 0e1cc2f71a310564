"""What the device can do at best: the rates that all floors are made from."""

from collections.abc import Iterator

import torch

from tests.gpu.machine import Machine
from tests.gpu.rows import Row


def measure(machine: Machine) -> Iterator[Row]:
    """A large copy, counting bytes read and written, and a large product of random numbers."""
    name = torch.cuda.get_device_name(machine.device) if machine.has_gpu else "the processor"
    yield Row(what=f"{name}: copying", unit="TB/s", ours=machine.copying.times(1e-12))
    yield Row(what=f"{name}: products", unit="TFLOP/s", ours=machine.multiplying.times(1e-12))
