"""How many blocks and sequences a model gets on a processor and on a GPU."""

from pathlib import Path
from typing import Any

import pytest

from appliance.errors import ConfigError, MachineError
from engines.pytorch.graphs import graph_sizes
from engines.pytorch.memory_sizes import (
    CPU_SLOTS,
    GPU_SLOTS,
    GpuUse,
    choose_cpu_sizes,
    choose_gpu_sizes,
)
from engines.runner import RunnerOptions

TOKEN_BYTES = 100
BLOCK_BYTES = 16 * TOKEN_BYTES
USE = GpuUse(
    total_bytes=100_000_000,
    others_bytes=1_000_000,
    weights_bytes=50_000_000,
    activation_bytes=8_000_000,
    graph_bytes=1_000_000,
)


def options(**fields: Any) -> RunnerOptions:
    return RunnerOptions(model="m", path=Path("m"), **fields)


def on_cpu(room_bytes: int, **fields: Any) -> Any:
    return choose_cpu_sizes(
        options(**fields), trained=1024, token_bytes=TOKEN_BYTES, room_bytes=room_bytes
    )


def test_a_processor_has_blocks_for_all_its_sequences_where_memory_is_plenty() -> None:
    sizes = on_cpu(10**9)
    assert (sizes.context_tokens, sizes.num_slots) == (1024, CPU_SLOTS)
    assert sizes.num_blocks == CPU_SLOTS * 64
    assert on_cpu(10**9, context_tokens=100, num_slots=3).num_blocks == 3 * 7


def test_a_quarter_of_the_memory_is_enough_and_one_sequence_the_least() -> None:
    assert on_cpu(4 * 200 * BLOCK_BYTES).num_blocks == 200
    assert on_cpu(200 * BLOCK_BYTES).num_blocks == 64
    with pytest.raises(MachineError) as short:
        on_cpu(63 * BLOCK_BYTES)
    assert short.value.code == "engine.memory_short"


def test_on_a_processor_prefixes_get_blocks_of_their_own() -> None:
    sizes = on_cpu(10**9, num_slots=1, prefix_bytes=10 * BLOCK_BYTES)
    assert (sizes.num_blocks, sizes.num_places) == (74, 0)


def test_a_gpu_gives_all_that_is_left_to_blocks_and_the_host_keeps_prefixes() -> None:
    sizes = choose_gpu_sizes(
        options(prefix_bytes=5 * BLOCK_BYTES), trained=1024, token_bytes=TOKEN_BYTES, use=USE
    )
    assert USE.kv_room_bytes == 32_000_000
    assert sizes.num_blocks == 32_000_000 // BLOCK_BYTES
    assert (sizes.num_slots, sizes.num_places) == (GPU_SLOTS, 5)


def test_a_gpu_without_room_for_one_sequence_is_told() -> None:
    with pytest.raises(MachineError, match="30 MiB are left"):
        choose_gpu_sizes(options(), trained=1024, token_bytes=100_000, use=USE)


def test_a_context_longer_than_trained_for_is_refused() -> None:
    with pytest.raises(ConfigError):
        on_cpu(10**9, context_tokens=1025)


@pytest.mark.parametrize("most", [1, 2, 5, 8, 40, 100, 256])
def test_graphs_waste_little_on_padding(most: int) -> None:
    sizes = graph_sizes(most)
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == most
    for number in range(1, most + 1):
        padded = next(size for size in sizes if size >= number)
        assert padded - number < max(8, number / 2)
