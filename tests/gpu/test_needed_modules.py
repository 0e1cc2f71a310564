"""The engine's step imports nothing but what an image for CUDA has, and a few small wheels."""

import subprocess
import sys
from typing import Final

import pytest

from tests.gpu import check, needed_modules

# What is installed beside those is hidden once they are there, with all that they bring.
_SCRIPT: Final = """
import sys
from importlib import import_module
from tests.gpu.check import NAMES
from tests.gpu.needed_modules import AS_WHEELS, IN_THE_IMAGE

needed = [name for name in (*IN_THE_IMAGE, *AS_WHEELS) if name != "transformers"]
for name in needed:
    import_module(name)
known = {name.partition(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)

class Only:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {*known, "appliance", "engines", "tests"}:
            raise ModuleNotFoundError(name)

def asked(*_):
    raise AssertionError("asked for a GPU, before parts are forked")

sys.meta_path.insert(0, Only())
torch = sys.modules["torch"]
torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = asked
for name in ("engines.pytorch.runner", "engines.scheduler", "engines.step_loop",
             "engines.pytorch.kernels.triton_ops", "tests.gpu.part_process"):
    import_module(name)
for name in NAMES:
    import_module(f"tests.gpu.parts.{name}")
"""


def test_the_engine_imports_nothing_else_and_asks_for_no_gpu_then() -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True)


def test_what_is_missing_is_named_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(needed_modules, "AS_WHEELS", ("msgspec", "no_such_library"))
    assert check.main([]) == 2
    assert "engine.not_installed: no_such_library" in capsys.readouterr().err
