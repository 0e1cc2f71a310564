"""Slots and context follow the model's header, the machine's memory and what was asked for."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from appliance.errors import ConfigError, MachineError
from engines.llamacpp.gguf_check import GgufFacts
from engines.llamacpp.sizing import choose_sizes
from engines.runner import RunnerOptions

# 30 blocks x 3 heads x (64 + 64) numbers x 2 bytes: 23,040 bytes a token.
FACTS = GgufFacts(
    architecture="llama",
    context_length=8192,
    num_blocks=30,
    num_kv_heads=(3,) * 30,
    key_length=64,
    value_length=64,
)
SLOT_BYTES = 4096 * 23_040


def options(context_tokens: int = 0, num_slots: int = 0) -> RunnerOptions:
    return RunnerOptions(
        model="m", path=Path("m.gguf"), context_tokens=context_tokens, num_slots=num_slots
    )


@pytest.mark.parametrize(
    ("available_bytes", "num_slots"),
    [(4 * SLOT_BYTES, 1), (20 * SLOT_BYTES, 5), (1000 * SLOT_BYTES, 16), (2 * SLOT_BYTES, 1)],
)
def test_slots_take_a_quarter_of_the_memory(available_bytes: int, num_slots: int) -> None:
    sizes = choose_sizes(options(), FACTS, available_bytes)
    assert (sizes.num_slots, sizes.context_tokens) == (num_slots, 4096)


@pytest.mark.parametrize(
    ("context_tokens", "num_heads", "graph_tokens"),
    [(4096, 9, 455), (8192, 32, 64), (131_072, 64, 32)],
)
def test_scores_of_long_contexts_keep_to_their_room(
    context_tokens: int, num_heads: int, graph_tokens: int
) -> None:
    facts = replace(FACTS, context_length=context_tokens, num_heads=num_heads)
    sizes = choose_sizes(options(context_tokens, 1), facts, 1000 * SLOT_BYTES)
    assert sizes.graph_tokens == graph_tokens


def test_what_was_asked_for_is_kept_exactly() -> None:
    sizes = choose_sizes(options(1000, 3), FACTS, 1000 * SLOT_BYTES)
    assert (sizes.num_slots, sizes.context_tokens, sizes.slot_cells) == (3, 1000, 1024)


def test_a_small_model_keeps_its_own_context() -> None:
    facts = GgufFacts(architecture="llama", context_length=512)
    assert choose_sizes(options(), facts, 1 << 30).context_tokens == 512


def test_more_context_than_the_model_knows_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"9000.*8192") as error:
        choose_sizes(options(9000), FACTS, 1000 * SLOT_BYTES)
    assert error.value.code == "engine.context_too_long"


@pytest.mark.parametrize("asked", [options(num_slots=8), options(8192)])
def test_what_does_not_fit_is_refused(asked: RunnerOptions) -> None:
    with pytest.raises(MachineError, match="MiB") as error:
        choose_sizes(asked, FACTS, SLOT_BYTES)
    assert error.value.code == "engine.memory_short"
