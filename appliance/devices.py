"""What this machine has: processors, memory, accelerators, disk.

Limits set from outside (affinity, control groups) count as the machine's size: a box in a
container of two cores has two cores.
"""

import contextlib
import importlib
import os
import platform
import shutil
from pathlib import Path
from types import ModuleType
from typing import Final

import psutil
from msgspec import Struct

# Those that decide how fast a quantised model runs on a processor.
_CPU_FLAGS: Final = frozenset(
    {"avx", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "f16c", "fma"}
    | {"asimd", "asimddp", "i8mm", "sve", "bf16"}
)
_CGROUP: Final = Path("/sys/fs/cgroup")
_PAGE_CACHE: Final = frozenset({"active_file", "inactive_file"})


class Cpu(Struct, frozen=True, kw_only=True):
    """The processors that this process may use."""

    architecture: str
    num_cores: int
    flags: tuple[str, ...]


class Memory(Struct, frozen=True, kw_only=True):
    """Main memory, in bytes."""

    total_bytes: int
    available_bytes: int


class Gpu(Struct, frozen=True, kw_only=True):
    """One NVIDIA accelerator."""

    index: int
    name: str
    total_bytes: int
    free_bytes: int


class Inventory(Struct, frozen=True, kw_only=True):
    """The machine as a whole."""

    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...]


def take_inventory() -> Inventory:
    """Look at the machine as it is now."""
    return Inventory(cpu=_cpu(), memory=_memory(_CGROUP), gpus=_gpus())


def free_disk_bytes(path: Path) -> int:
    """The space left for this user where `path` is, or will be. Raises OSError."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def _cpu() -> Cpu:
    num_allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    num_cores = num_allowed or os.cpu_count() or 1
    return Cpu(
        architecture=platform.machine(),
        num_cores=max(1, min(num_cores, _cgroup_cores(_CGROUP) or num_cores)),
        flags=_flags(Path("/proc/cpuinfo")),
    )


def _cgroup_cores(group: Path) -> int:
    """Whole cores' worth of time that the control group allows; 0: no limit."""
    quota, _, period = _read(group / "cpu.max").partition(" ")
    return int(quota) // int(period) or 1 if quota.isdigit() and period.isdigit() else 0


def _flags(cpuinfo: Path) -> tuple[str, ...]:
    for line in _read(cpuinfo).splitlines():
        name, _, value = line.partition(":")
        if name.strip() in {"flags", "Features"}:
            return tuple(sorted(_CPU_FLAGS.intersection(value.split())))
    return ()


def _memory(group: Path) -> Memory:
    machine = psutil.virtual_memory()
    limit, used = _read(group / "memory.max"), _read(group / "memory.current")
    if not (limit.isdigit() and used.isdigit()):
        return Memory(total_bytes=machine.total, available_bytes=machine.available)
    left = max(0, int(limit) - int(used) + _page_cache_bytes(group))
    return Memory(
        total_bytes=min(machine.total, int(limit)), available_bytes=min(machine.available, left)
    )


def _page_cache_bytes(group: Path) -> int:
    """Copies of files, which count as used and make room when it is needed (proc(5), Cached)."""
    pairs = (line.split() for line in _read(group / "memory.stat").splitlines())
    return sum(int(number) for name, number in pairs if name in _PAGE_CACHE)


def _gpus() -> tuple[Gpu, ...]:
    """Every GPU that NVML shows; none where its Python binding or the driver is missing."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return ()
    try:
        return tuple(_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount()))
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: ModuleType, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    name, memory = nvml.nvmlDeviceGetName(handle), nvml.nvmlDeviceGetMemoryInfo(handle)
    return Gpu(
        index=index,
        name=name.decode() if isinstance(name, bytes) else name,
        total_bytes=memory.total,
        free_bytes=memory.free,
    )


def _read(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="ascii", errors="replace").strip()
    return ""
