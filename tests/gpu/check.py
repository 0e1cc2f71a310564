"""`make gpu-check`, or `python -m tests.gpu.check`: is it right on this GPU, and how fast.

Prints a row for each thing that is measured: the floor, ours, their ratio and the goal. Takes at
most eight minutes and no network. `--small` runs all of it on a processor with tiny shapes, where
kernels are interpreted and nothing is timed.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from tests.gpu.needed_modules import missing_modules

if TYPE_CHECKING:
    from tests.gpu.part_process import Part
    from tests.gpu.rows import Row

NAMES: Final = {
    "ceilings": 20.0,
    "kernels_between": 40.0,
    "kernels_attention": 80.0,
    "kernels_products": 60.0,
    "kernels_sampling": 30.0,
    "whole_model": 40.0,
    "decode_attention": 40.0,
    "packed_products": 40.0,
    "large_model_step": 40.0,
    "graphs_and_overlap": 40.0,
    "throughput": 100.0,
    "shared_prefix": 30.0,
    "drafts": 35.0,
    "batch_mixes": 40.0,
    "long_prompt": 40.0,
    "sleeping": 40.0,
}
# Nothing is printed or fetched on the way, and who asks whether there is a GPU does not begin to
# use it: a process that has cannot be forked.
_QUIET: Final = {
    "HF_HUB_OFFLINE": "1",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "TQDM_DISABLE": "1",
}
# For all parts together, whatever each of them may take.
_MOST_S: Final = 465.0


def main(arguments: Sequence[str] | None = None) -> int:
    """0: what was measured is right; 1: something is not, or broke; 2: a library is missing."""
    options = _parser().parse_args(arguments)
    if missing := missing_modules():
        sys.stderr.write(f"engine.not_installed: {', '.join(missing)}: install as wheels\n")
        return 2
    _set_environment(is_small=options.small)
    from tests.gpu.rows import is_wrong, table

    rows = _measure(options.only or list(NAMES), is_small=options.small)
    sys.stdout.write("\n" + table(rows))
    if options.json:
        _write_json(options.json, rows)
    return int(any(map(is_wrong, rows)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows there, too")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help="these parts")
    parser.add_argument("--small", action="store_true", help="tiny shapes on the processor")
    return parser


def _set_environment(*, is_small: bool) -> None:
    """As workers have it; before torch and triton are imported, which read it then."""
    from appliance.environment import worker_environment

    os.environ.update(worker_environment(), **_QUIET)
    if is_small:
        os.environ["TRITON_INTERPRET"] = "1"


def _measure(names: list[str], *, is_small: bool) -> list["Row"]:
    from tests.gpu.part_process import run_part
    from tests.gpu.rows import not_measured, without_gpu

    rows: list[Row] = []
    ends_at = monotonic() + _MOST_S
    with tempfile.TemporaryDirectory(prefix="gpu-check-") as folder:
        for part in [part for part in _parts() if part.name in names]:
            began_at = monotonic()
            most_s = min(part.budget_s, ends_at - began_at)
            if most_s <= 0:
                rows.append(not_measured(part.name, "no time left"))
                continue
            found = run_part(part, Path(folder), is_small=is_small, most_s=most_s)
            rows += map(without_gpu, found) if is_small else found
            sys.stdout.write(f"{part.name}: {monotonic() - began_at:.0f} s\n")
            sys.stdout.flush()
    return rows


def _parts() -> list["Part"]:
    from importlib import import_module

    from tests.gpu.part_process import Part

    return [
        Part(name=name, measure=import_module(f"tests.gpu.parts.{name}").measure, budget_s=budget_s)
        for name, budget_s in NAMES.items()
    ]


def _write_json(path: Path, rows: list["Row"]) -> None:
    import msgspec
    import torch
    import triton

    told = {
        "torch": str(torch.__version__),
        "triton": str(triton.__version__),
        "rows": [{**msgspec.to_builtins(row), "verdict": row.verdict} for row in rows],
    }
    path.write_bytes(msgspec.json.format(msgspec.json.encode(told)) + b"\n")


if __name__ == "__main__":
    sys.exit(main())
