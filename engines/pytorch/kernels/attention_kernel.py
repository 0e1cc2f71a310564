"""Attention over the paged cache in Triton, for steps that decode, prefill, or do both.

The rows of a tile are query tokens times the query heads that share a head of keys, so keys are
read once for all of them. Keys are walked in tiles at absolute positions, with a running maximum
and sum (FlashAttention, Dao et al. 2022). Sequences with one new token, or with that and drafts,
are cut into splits of a fixed number of keys, worked off by as many programs as the GPU runs at
once and joined by a second kernel (Flash-Decoding, 2023). Those with more new tokens are walked
whole, tile by tile of their queries. Each of the three has tiles, and a launch, of its own.

So what is computed for a token, and in which order, follows from its own sequence alone: not from
what else is in the batch, nor how long others are. Nothing that depends on lengths is a constant of
the compiler.
"""

from functools import cache
from typing import Final

import torch
import triton
from msgspec import Struct
from torch import Tensor
from triton import language as tl

from engines.pytorch.kernels.chip import chip_of
from engines.pytorch.kernels.float8_kernel import from_bytes
from engines.pytorch.kv_cache import LayerCache
from engines.pytorch.ops import AttentionShape
from engines.pytorch.step_inputs import StepInputs

# Keys of a split: with fewer, joining costs more than 3 % of the traffic at 8 query heads a key
# head; with more, one long sequence alone keeps too few processors busy.
SPLIT: Final = 512
# Rows of query tokens times heads: of sequences that decode a token, and of those with drafts.
_SINGLE_ROWS: Final = 16
_DRAFT_ROWS: Final = 64
# Sequences looked at together when a program looks for its own.
_LOOK = tl.constexpr(128)


# Of a program's shared memory, what is not tiles of keys and values (read in the compile table).
_OTHER_BYTES: Final = 10240
_ANY: Final = 1 << 30


class Tiling(Struct, frozen=True, kw_only=True):
    """How the rows and keys of some sequences are walked.

    - `least`, `most`: it is for those with more than `least` new tokens and at most `most`
    - `tile`: keys of a tile; `num_buffers`: tiles under way from memory
    - `num_residents`: programs that share a processor's registers
    """

    least: int
    most: int
    block_rows: int
    tile: int
    num_buffers: int
    num_warps: int
    num_residents: int = 1

    @property
    def num_stages(self) -> int:
        """For the compiler: a tile waits for the numbers of its blocks, so each takes two."""
        return 2 * self.num_buffers + 1


class Plan(Struct, frozen=True, kw_only=True):
    """How a model's heads are walked: with one new token, with drafts, and with many new tokens."""

    group: int
    padded_dim: int
    singles: Tiling
    drafts: Tiling
    many: Tiling


@cache
def plan(group: int, head_dim: int, item_bytes: int) -> Plan:
    """For heads of `head_dim` numbers of `item_bytes` in the cache, `group` queries to a key.

    The figures are those with which nothing spills (read in the compile table).
    """
    padded_dim = max(16, triton.next_power_of_2(head_dim))
    is_wide = padded_dim > 128
    single_rows = max(_SINGLE_ROWS, triton.next_power_of_2(group))
    draft_rows = max(32 if is_wide else _DRAFT_ROWS, single_rows)
    tile = 32 if is_wide or item_bytes == 4 else 64
    return Plan(
        group=group,
        padded_dim=padded_dim,
        singles=Tiling(
            least=0,
            most=single_rows // group,
            block_rows=single_rows,
            tile=tile,
            num_buffers=3 if padded_dim * item_bytes <= 128 else 2,
            num_warps=8 if is_wide else 4,
            num_residents=_num_residents(single_rows, head_dim, item_bytes),
        ),
        drafts=Tiling(
            least=single_rows // group,
            most=draft_rows // group,
            block_rows=draft_rows,
            tile=tile,
            num_buffers=2,
            num_warps=8,
        ),
        many=Tiling(
            least=draft_rows // group,
            most=_ANY,
            block_rows=max(draft_rows, 64 if is_wide or item_bytes == 1 else 128),
            tile=tile,
            num_buffers=2,
            num_warps=8,
        ),
    )


def _num_residents(num_rows: int, head_dim: int, item_bytes: int) -> int:
    """Programs whose registers fit a processor; memory's latency is hidden by there being some.

    One more than fit would run as a second shift, so it goes by the compiler that takes most (3.6:
    218 registers a thread at 128 numbers of 16 bits, where 3.9 takes 168).
    """
    if head_dim > 128 or item_bytes == 4:
        return 1
    return 3 if head_dim == 64 and item_bytes == 2 and num_rows <= 16 else 2


def attend(queries: Tensor, cache: LayerCache, inputs: StepInputs, shape: AttentionShape) -> Tensor:
    """See `attention.attend`."""
    num_heads, head_dim = queries.shape[1:]
    queries = queries if queries.stride()[1:] == (head_dim, 1) else queries.contiguous()
    answers = torch.empty(queries.shape, dtype=queries.dtype, device=queries.device)
    plan_ = plan(num_heads // cache.keys.shape[1], head_dim, cache.keys.dtype.itemsize)
    longest = inputs.max_query_length
    _attend_few(answers, queries, cache, inputs, shape, plan_, plan_.singles)
    if longest > plan_.drafts.least and plan_.drafts.most > plan_.drafts.least:
        _attend_few(answers, queries, cache, inputs, shape, plan_, plan_.drafts)
    if longest > plan_.many.least:
        _attend_many(answers, queries, cache, inputs, shape, plan_)
    return answers


def _attend_few(
    answers: Tensor,
    queries: Tensor,
    cache: LayerCache,
    inputs: StepInputs,
    shape: AttentionShape,
    plan_: Plan,
    tiling: Tiling,
) -> None:
    num_sequences, num_kv_heads = len(inputs.context_lengths), cache.keys.shape[1]
    num_tokens = min(inputs.max_query_length, tiling.most)
    num_rows = num_tokens * plan_.group
    max_splits = triton.cdiv(inputs.block_tables.shape[1] * cache.block_size, SPLIT)
    if shape.window:
        max_splits = min(max_splits, triton.cdiv(shape.window + num_tokens, SPLIT) + 1)
    size = (num_sequences, num_kv_heads, max_splits, num_rows)
    sums = torch.empty((*size, 2), device=queries.device)
    parts = torch.empty((*size, queries.shape[2]), device=queries.device)
    num_programs = min(
        num_sequences * num_kv_heads * max_splits,
        chip_of(queries.device).num_processors * _residents(tiling, plan_, cache),
    )
    _walk_few[(num_programs,)](
        *_pointers(answers, queries, cache, inputs),
        sums,
        parts,
        *_numbers(queries, inputs, shape, tiling),
        max_splits,
        num_rows,
        **_constants(queries, cache, shape, plan_, tiling),
        SPLIT=SPLIT,
    )
    if max_splits > 1:
        _join[(num_sequences * num_tokens, queries.shape[1])](
            answers,
            sums,
            parts,
            inputs.query_starts,
            inputs.context_lengths,
            tiling.least,
            tiling.most,
            max_splits,
            num_rows,
            num_tokens,
            shape.window,
            GROUP=plan_.group,
            HEAD_DIM=queries.shape[2],
            PADDED_DIM=plan_.padded_dim,
            SPLIT=SPLIT,
            num_warps=4,
        )


def _attend_many(
    answers: Tensor,
    queries: Tensor,
    cache: LayerCache,
    inputs: StepInputs,
    shape: AttentionShape,
    plan_: Plan,
) -> None:
    tiling = plan_.many
    num_tiles = len(queries) // (tiling.block_rows // plan_.group) + len(inputs.context_lengths)
    _walk_many[(num_tiles, cache.keys.shape[1])](
        *_pointers(answers, queries, cache, inputs),
        *_numbers(queries, inputs, shape, tiling),
        **_constants(queries, cache, shape, plan_, tiling),
    )


def _pointers(
    answers: Tensor, queries: Tensor, cache: LayerCache, inputs: StepInputs
) -> tuple[Tensor | None, ...]:
    is_float8 = cache.key_scales is not None
    return (
        answers,
        queries,
        cache.keys.view(torch.uint8) if is_float8 else cache.keys,
        cache.values.view(torch.uint8) if is_float8 else cache.values,
        cache.key_scales,
        cache.value_scales,
        inputs.query_starts,
        inputs.context_lengths,
        inputs.block_tables,
    )


def _numbers(
    queries: Tensor, inputs: StepInputs, shape: AttentionShape, tiling: Tiling
) -> tuple[int | float, ...]:
    return (
        tiling.least,
        tiling.most,
        len(inputs.context_lengths),
        queries.stride(0),
        inputs.block_tables.stride(0),
        shape.scale,
        shape.soft_cap,
        shape.window,
    )


def _constants(
    queries: Tensor,
    cache: LayerCache,
    shape: AttentionShape,
    plan_: Plan,
    tiling: Tiling,
) -> dict[str, int | bool]:
    is_float8 = cache.key_scales is not None
    return {
        "NUM_KV_HEADS": cache.keys.shape[1],
        "GROUP": plan_.group,
        "HEAD_DIM": queries.shape[2],
        "PADDED_DIM": plan_.padded_dim,
        "BLOCK_SIZE": cache.block_size,
        "BLOCK_ROWS": tiling.block_rows,
        "TILE": tiling.tile,
        "HAS_WINDOW": shape.window > 0,
        "HAS_SOFT_CAP": shape.soft_cap > 0,
        "IS_FLOAT8": is_float8,
        "IS_NATIVE": is_float8 and chip_of(queries.device).has_float8,
        "num_warps": tiling.num_warps,
        "num_stages": tiling.num_stages,
    }


def _residents(tiling: Tiling, plan_: Plan, cache: LayerCache) -> int:
    """Programs that one processor has room for: what is left over would run as a second shift."""
    tile_bytes = 2 * tiling.tile * plan_.padded_dim * cache.keys.dtype.itemsize
    program_bytes = tiling.num_buffers * tile_bytes + _OTHER_BYTES
    fitting = chip_of(cache.keys.device).shared_bytes // program_bytes
    return max(1, min(tiling.num_residents, fitting))


@triton.jit(
    do_not_specialize=[
        "least",
        "most",
        "num_sequences",
        "table_stride",
        "window",
        "max_splits",
        "num_rows",
    ]
)
def _walk_few(
    answers,
    queries,
    keys,
    values,
    key_scales,
    value_scales,
    query_starts,
    context_lengths,
    block_tables,
    sums,
    parts,
    least,
    most,
    num_sequences,
    query_stride,
    table_stride,
    scale,
    soft_cap,
    window,
    max_splits,
    num_rows,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    TILE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFT_CAP: tl.constexpr,
    IS_FLOAT8: tl.constexpr,
    IS_NATIVE: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """The splits of all sequences with few new tokens, dealt out to the programs."""
    num_items = _count_splits(
        query_starts, context_lengths, num_sequences, least, most, window, HAS_WINDOW, SPLIT
    )
    first_item = tl.program_id(0)
    for item in range(first_item, num_items * NUM_KV_HEADS, tl.num_programs(0)):
        kv_head = item % NUM_KV_HEADS
        sequence, ordinal = _find_split(
            item // NUM_KV_HEADS,
            query_starts,
            context_lengths,
            num_sequences,
            least,
            most,
            window,
            HAS_WINDOW,
            SPLIT,
        )
        query_start = tl.load(query_starts + sequence)
        num_new = tl.load(query_starts + sequence + 1) - query_start
        length = tl.load(context_lengths + sequence)
        first_split, num_splits = _splits(num_new, length, least, most, window, HAS_WINDOW, SPLIT)
        rows = tl.arange(0, BLOCK_ROWS)
        is_row = rows < num_new * GROUP
        positions = tl.where(is_row, length - num_new + rows // GROUP, -1)
        heads = kv_head * GROUP + rows % GROUP
        tokens = (query_start + rows // GROUP).to(tl.int64)
        begin = (first_split + ordinal) * SPLIT
        end = tl.minimum(begin + SPLIT, length)
        if HAS_WINDOW:
            begin = tl.maximum(begin, (length - num_new - window + 1) // TILE * TILE)
        tile = _load_queries(
            queries + tokens * query_stride + heads * HEAD_DIM, is_row, HEAD_DIM, PADDED_DIM
        )
        part, total, top = _walk(
            tile,
            positions,
            begin,
            end,
            keys,
            values,
            key_scales,
            value_scales,
            block_tables + sequence.to(tl.int64) * table_stride,
            kv_head,
            scale,
            soft_cap,
            window,
            NUM_KV_HEADS,
            HEAD_DIM,
            PADDED_DIM,
            BLOCK_SIZE,
            BLOCK_ROWS,
            TILE,
            HAS_WINDOW,
            HAS_SOFT_CAP,
            IS_FLOAT8,
            IS_NATIVE,
        )
        dims = tl.arange(0, PADDED_DIM)
        mask = is_row[:, None] & (dims < HEAD_DIM)[None, :]
        if num_splits == 1:
            where = (tokens * (NUM_KV_HEADS * GROUP) + heads) * HEAD_DIM
            answer = part / tl.where(total > 0, total, 1.0)[:, None]
            answer = answer.to(answers.dtype.element_ty)
            tl.store(answers + where[:, None] + dims[None, :], answer, mask=mask)
        else:
            split = (sequence.to(tl.int64) * NUM_KV_HEADS + kv_head) * max_splits + ordinal
            where = split * num_rows + rows
            tl.store(sums + where * 2, top, mask=is_row)
            tl.store(sums + where * 2 + 1, total, mask=is_row)
            tl.store(parts + where[:, None] * HEAD_DIM + dims[None, :], part, mask=mask)


@triton.jit
def _splits(num_new, length, least, most, window, HAS_WINDOW: tl.constexpr, SPLIT: tl.constexpr):
    """The first split that a sequence's new tokens see, and how many; of padding one, of no keys.

    None of a sequence whose new tokens are too few or too many.
    """
    first = length * 0
    if HAS_WINDOW:
        first = tl.maximum(length - num_new - window + 1, 0) // SPLIT
    count = tl.maximum((length + SPLIT - 1) // SPLIT - first, 1)
    is_ours = (num_new > least) & (num_new <= most)
    return first, tl.where(is_ours, count, 0)


@triton.jit
def _look(
    start,
    query_starts,
    context_lengths,
    num_sequences,
    least,
    most,
    window,
    HAS_WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """How many splits the sequences from `start` on have."""
    sequences = start + tl.arange(0, _LOOK)
    is_one = sequences < num_sequences
    begins = tl.load(query_starts + sequences, mask=is_one, other=0)
    ends = tl.load(query_starts + sequences + 1, mask=is_one, other=0)
    lengths = tl.load(context_lengths + sequences, mask=is_one, other=0)
    _, counts = _splits(ends - begins, lengths, least, most, window, HAS_WINDOW, SPLIT)
    return counts


@triton.jit
def _count_splits(
    query_starts,
    context_lengths,
    num_sequences,
    least,
    most,
    window,
    HAS_WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
):
    total = 0
    for start in range(0, num_sequences, _LOOK):
        counts = _look(
            start,
            query_starts,
            context_lengths,
            num_sequences,
            least,
            most,
            window,
            HAS_WINDOW,
            SPLIT,
        )
        total += tl.sum(counts)
    return total


@triton.jit
def _find_split(
    item,
    query_starts,
    context_lengths,
    num_sequences,
    least,
    most,
    window,
    HAS_WINDOW: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """The sequence that has the item-th split of all, and which of its own it is."""
    sequence = 0
    before = 0
    passed = 0
    for start in range(0, num_sequences, _LOOK):
        counts = _look(
            start,
            query_starts,
            context_lengths,
            num_sequences,
            least,
            most,
            window,
            HAS_WINDOW,
            SPLIT,
        )
        is_passed = passed + tl.cumsum(counts) <= item
        is_passed = is_passed & (start + tl.arange(0, _LOOK) < num_sequences)
        sequence += tl.sum(is_passed.to(tl.int32))
        before += tl.sum(tl.where(is_passed, counts, 0))
        passed += tl.sum(counts)
    return sequence, item - before


@triton.jit(
    do_not_specialize=["least", "most", "max_splits", "num_rows", "num_tokens", "window"],
    do_not_specialize_on_alignment=["query_starts", "context_lengths"],
)
def _join(
    answers,
    sums,
    parts,
    query_starts,
    context_lengths,
    least,
    most,
    max_splits,
    num_rows,
    num_tokens,
    window,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """One head of one token from its splits, sixteen at a time."""
    sequence = tl.program_id(0) // num_tokens
    token = tl.program_id(0) % num_tokens
    head = tl.program_id(1)
    query_start = tl.load(query_starts + sequence)
    num_new = tl.load(query_starts + sequence + 1) - query_start
    length = tl.load(context_lengths + sequence)
    # Where there is a window, its start; else it lies before any sequence.
    _, num_splits = _splits(
        num_new, length, least, most, tl.where(window > 0, window, 1 << 30), True, SPLIT
    )
    if token < num_new and num_splits > 1:
        kv_heads = tl.num_programs(1) // GROUP
        row = token * GROUP + head % GROUP
        base = (sequence.to(tl.int64) * kv_heads + head // GROUP) * max_splits
        dims = tl.arange(0, PADDED_DIM)
        top = float("-inf")
        total = 0.0
        answer = tl.zeros([PADDED_DIM], tl.float32)
        for start in range(0, num_splits, 16):
            splits = start + tl.arange(0, 16)
            is_split = splits < num_splits
            where = (base + splits) * num_rows + row
            tops = tl.load(sums + where * 2, mask=is_split, other=float("-inf"))
            totals = tl.load(sums + where * 2 + 1, mask=is_split, other=0.0)
            mask = is_split[:, None] & (dims < HEAD_DIM)[None, :]
            some = tl.load(parts + where[:, None] * HEAD_DIM + dims[None, :], mask=mask, other=0.0)
            new_top = tl.maximum(top, tl.max(tops))
            floor = tl.where(new_top == float("-inf"), 0.0, new_top)
            weights = tl.exp2(tops - floor)
            fade = tl.exp2(top - floor)
            total = total * fade + tl.sum(totals * weights)
            answer = answer * fade + tl.sum(some * weights[:, None], axis=0)
            top = new_top
        where = ((query_start + token).to(tl.int64) * tl.num_programs(1) + head) * HEAD_DIM
        answer = (answer / total).to(answers.dtype.element_ty)
        tl.store(answers + where + dims, answer, mask=dims < HEAD_DIM)


@triton.jit(
    do_not_specialize=["least", "most", "num_sequences", "table_stride", "window"],
    do_not_specialize_on_alignment=["query_starts", "context_lengths", "block_tables"],
)
def _walk_many(
    answers,
    queries,
    keys,
    values,
    key_scales,
    value_scales,
    query_starts,
    context_lengths,
    block_tables,
    least,
    most,
    num_sequences,
    query_stride,
    table_stride,
    scale,
    soft_cap,
    window,
    NUM_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    TILE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFT_CAP: tl.constexpr,
    IS_FLOAT8: tl.constexpr,
    IS_NATIVE: tl.constexpr,
):
    """One tile of a sequence with many new tokens. The last, which see most, come first."""
    BLOCK_TOKENS: tl.constexpr = BLOCK_ROWS // GROUP
    tile_index = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    sequence = _find_sequence(tile_index, query_starts, num_sequences, BLOCK_TOKENS)
    query_start = tl.load(query_starts + sequence)
    num_new = tl.load(query_starts + sequence + 1) - query_start
    length = tl.load(context_lengths + sequence)
    first_token = (tile_index - query_start // BLOCK_TOKENS - sequence) * BLOCK_TOKENS
    if num_new > least and num_new <= most and first_token < num_new:
        rows = tl.arange(0, BLOCK_ROWS)
        in_sequence = first_token + rows // GROUP
        is_row = (in_sequence < num_new) & (rows < BLOCK_TOKENS * GROUP)
        positions = tl.where(is_row, length - num_new + in_sequence, -1)
        heads = kv_head * GROUP + rows % GROUP
        tokens = (query_start + in_sequence).to(tl.int64)
        begin = 0
        end = length - num_new + tl.minimum(first_token + BLOCK_TOKENS, num_new)
        if HAS_WINDOW:
            first_seen = length - num_new + first_token - window + 1
            begin = tl.maximum(first_seen, 0) // TILE * TILE
        tile = _load_queries(
            queries + tokens * query_stride + heads * HEAD_DIM, is_row, HEAD_DIM, PADDED_DIM
        )
        part, total, _ = _walk(
            tile,
            positions,
            begin,
            end,
            keys,
            values,
            key_scales,
            value_scales,
            block_tables + sequence.to(tl.int64) * table_stride,
            kv_head,
            scale,
            soft_cap,
            window,
            NUM_KV_HEADS,
            HEAD_DIM,
            PADDED_DIM,
            BLOCK_SIZE,
            BLOCK_ROWS,
            TILE,
            HAS_WINDOW,
            HAS_SOFT_CAP,
            IS_FLOAT8,
            IS_NATIVE,
        )
        dims = tl.arange(0, PADDED_DIM)
        where = (tokens * (NUM_KV_HEADS * GROUP) + heads) * HEAD_DIM
        answer = part / tl.where(total > 0, total, 1.0)[:, None]
        tl.store(
            answers + where[:, None] + dims[None, :],
            answer.to(answers.dtype.element_ty),
            mask=is_row[:, None] & (dims < HEAD_DIM)[None, :],
        )


@triton.jit
def _find_sequence(tile_index, query_starts, num_sequences, BLOCK_TOKENS: tl.constexpr):
    """Whose tile it is: sequence s has those from query_starts[s] // BLOCK_TOKENS + s on."""
    count = 0
    for start in range(0, num_sequences, _LOOK):
        sequences = start + tl.arange(0, _LOOK)
        is_one = sequences < num_sequences
        begins = tl.load(query_starts + sequences, mask=is_one, other=0)
        is_begun = is_one & (begins // BLOCK_TOKENS + sequences <= tile_index)
        count += tl.sum(is_begun.to(tl.int32))
    return count - 1


@triton.jit
def _load_queries(rows, is_row, HEAD_DIM: tl.constexpr, PADDED_DIM: tl.constexpr):
    dims = tl.arange(0, PADDED_DIM)
    mask = is_row[:, None] & (dims < HEAD_DIM)[None, :]
    return tl.load(rows[:, None] + dims[None, :], mask=mask, other=0.0)


@triton.jit
def _walk(
    queries,
    positions,
    begin,
    end,
    keys,
    values,
    key_scales,
    value_scales,
    block_table,
    kv_head,
    scale,
    soft_cap,
    window,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    TILE: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SOFT_CAP: tl.constexpr,
    IS_FLOAT8: tl.constexpr,
    IS_NATIVE: tl.constexpr,
):
    """Rows of queries over the keys in [begin, end): weighted values, the weights' sums and tops.

    Numbers of 8 bits are multiplied as float16, which holds them exactly. Queries and weights are
    brought to 1 at most before, so that they fit, and each tile's sum is scaled back before it is
    added: accumulating in two levels, so that no small number is lost beside a large one.
    """
    dims = tl.arange(0, PADDED_DIM)
    is_dim = dims < HEAD_DIM
    sizes = tl.full([BLOCK_ROWS], 1.0, tl.float32)
    if IS_FLOAT8:
        wide = queries.to(tl.float32)
        sizes = tl.maximum(tl.max(tl.abs(wide), axis=1), 1e-30)
        queries = (wide / sizes[:, None]).to(tl.float16)
    else:
        queries = queries.to(keys.dtype.element_ty)
    top = tl.full([BLOCK_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_ROWS], tl.float32)
    answer = tl.zeros([BLOCK_ROWS, PADDED_DIM], tl.float32)
    for start in range(begin, end, TILE):
        at = start + tl.arange(0, TILE)
        is_key = at < end
        blocks = tl.load(block_table + at // BLOCK_SIZE, mask=is_key, other=0).to(tl.int64)
        slots = (blocks * NUM_KV_HEADS + kv_head) * BLOCK_SIZE + at % BLOCK_SIZE
        some_keys = tl.load(
            keys + slots[None, :] * HEAD_DIM + dims[:, None],
            mask=is_key[None, :] & is_dim[:, None],
            other=0,
        )
        some_values = tl.load(
            values + slots[:, None] * HEAD_DIM + dims[None, :],
            mask=is_key[:, None] & is_dim[None, :],
            other=0,
        )
        if IS_FLOAT8:
            some_keys = from_bytes(some_keys, IS_NATIVE)
            some_values = from_bytes(some_values, IS_NATIVE)
        scores = tl.dot(queries, some_keys, input_precision="ieee") * scale
        if IS_FLOAT8:
            key_scale = tl.load(key_scales + slots, mask=is_key, other=0.0)
            scores *= sizes[:, None] * key_scale[None, :]
        if HAS_SOFT_CAP:
            # tanh(y) of a positive y is (1 - e) / (1 + e) with e = exp(-2 y), which is 1 at most.
            shrunk = tl.exp(tl.abs(scores) * (-2.0 / soft_cap))
            capped = soft_cap * (1.0 - shrunk) / (1.0 + shrunk)
            scores = tl.where(scores < 0, -capped, capped)
        is_seen = at[None, :] <= positions[:, None]
        if HAS_WINDOW:
            is_seen = is_seen & (at[None, :] > positions[:, None] - window)
        scores = tl.where(is_seen, scores * 1.4426950408889634, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        # A row that has seen nothing yet has no top to subtract.
        floor = tl.where(new_top == float("-inf"), 0.0, new_top)
        weights = tl.exp2(scores - floor[:, None])
        fade = tl.exp2(top - floor)
        total = total * fade + tl.sum(weights, axis=1)
        answer *= fade[:, None]
        if IS_FLOAT8:
            weights *= tl.load(value_scales + slots, mask=is_key, other=0.0)[None, :]
            largest = tl.maximum(tl.max(weights, axis=1), 1e-30)
            weights = (weights / largest[:, None]).to(tl.float16)
            answer += tl.dot(weights, some_values) * largest[:, None]
        else:
            weights = weights.to(some_values.dtype)
            answer = tl.dot(weights, some_values, answer, input_precision="ieee")
        top = new_top
    return answer, total, top
