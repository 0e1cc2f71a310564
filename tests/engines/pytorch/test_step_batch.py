"""A step's tensors: every token at its place, whatever kinds of chunks stand beside each other."""

import pytest
import torch

from appliance.generation import SamplingParams
from engines.pytorch.kv_blocks import KvBlocks
from engines.pytorch.step_batch import StepBatch, only_decodes
from engines.pytorch.step_inputs import StepInputs
from engines.runner import Chunk
from engines.sequence import Sequence

BLOCK = 4


@pytest.fixture
def kv() -> KvBlocks:
    return KvBlocks(40, num_slots=6, context_tokens=40, block_tokens=BLOCK)


@pytest.fixture
def batch(kv: KvBlocks) -> StepBatch:
    return StepBatch(kv, step_tokens=32, device=torch.device("cpu"))


def running(kv: KvBlocks, length: int, first_id: int) -> Sequence:
    sequence = Sequence(
        request_id=str(first_id),
        index=0,
        num_prompt_tokens=length,
        token_ids=[*range(first_id, first_id + length)],
        max_tokens=40,
        sampling=SamplingParams(),
        seed=0,
    )
    assert kv.admit(sequence)
    return sequence


def chunk_of(sequence: Sequence, start: int, length: int, drafts: tuple[int, ...] = ()) -> Chunk:
    samples = start + length == len(sequence.token_ids)
    return Chunk(sequence=sequence, start=start, length=length, samples=samples, drafts=drafts)


def check(inputs: StepInputs, chunks: list[Chunk], kv: KvBlocks) -> None:
    """Token by token, from the plan itself."""
    token_ids, positions, slots = [], [], []
    for chunk in chunks:
        ids = chunk.sequence.token_ids[chunk.start : chunk.start + chunk.length]
        token_ids += [*ids, *chunk.drafts]
        for position in range(chunk.start, chunk.start + chunk.length + len(chunk.drafts)):
            block = kv.tables[chunk.sequence.kv.row, position // BLOCK]
            positions.append(position)
            slots.append(int(block) * BLOCK + position % BLOCK)
    assert inputs.token_ids.tolist() == token_ids
    assert inputs.positions.tolist() == positions
    assert inputs.slots.tolist() == slots
    lengths = [chunk.length + len(chunk.drafts) for chunk in chunks]
    starts = [sum(lengths[:number]) for number in range(len(lengths) + 1)]
    assert inputs.query_starts.tolist() == starts
    ends = [chunk.start + length for chunk, length in zip(chunks, lengths, strict=True)]
    assert inputs.context_lengths.tolist() == ends
    assert inputs.max_query_length == max(lengths)
    for table, chunk, end in zip(inputs.block_tables.tolist(), chunks, ends, strict=True):
        num_blocks = -(-end // BLOCK)
        assert (
            table[:num_blocks] == [block.index for block in chunk.sequence.kv.blocks][:num_blocks]
        )


def test_chunks_of_all_kinds_stand_one_after_the_other(kv: KvBlocks, batch: StepBatch) -> None:
    decode, drafted, prompt, middle = (
        running(kv, length, 100 * length) for length in (9, 5, 11, 20)
    )
    assert kv.grow(drafted, 8)
    chunks = [
        chunk_of(decode, 8, 1),
        chunk_of(drafted, 4, 1, drafts=(1, 2, 3)),
        chunk_of(prompt, 0, 11),
        chunk_of(middle, 5, 9),
    ]
    inputs = batch.fill(chunks)
    check(inputs, chunks, kv)
    assert inputs.output_rows.tolist() == [0, 1, 2, 3, 4, 15]


def test_all_rows_of_a_prompt_that_is_scored_are_wanted(kv: KvBlocks, batch: StepBatch) -> None:
    scored, other = running(kv, 6, 100), running(kv, 5, 200)
    scored.prompt_scores = []
    chunks = [chunk_of(other, 0, 3), chunk_of(scored, 2, 4)]
    assert batch.fill(chunks).output_rows.tolist() == [3, 4, 5, 6]


def test_a_step_that_only_decodes_is_the_same_either_way(kv: KvBlocks, batch: StepBatch) -> None:
    chunks = [chunk_of(running(kv, length, 100 * length), length - 1, 1) for length in (9, 1, 17)]
    assert only_decodes(chunks)
    check(batch.fill(chunks), chunks, kv)
    check(batch.fill_decodes(chunks, 3), chunks, kv)


def test_padding_is_stored_nowhere_and_sees_nothing(kv: KvBlocks, batch: StepBatch) -> None:
    longer = [chunk_of(running(kv, 9, 100 * number), 8, 1) for number in range(1, 5)]
    batch.fill_decodes(longer, 4)
    inputs = batch.fill_decodes(longer[:1], 4)
    assert inputs.slots.tolist()[1:] == [-1] * 3
    assert inputs.context_lengths.tolist() == [9, 0, 0, 0]
    assert inputs.query_starts.tolist() == [0, 1, 2, 3, 4]
    assert inputs.output_rows.tolist() == [0, 1, 2, 3]
    assert inputs.block_tables.shape[1] == kv.tables.shape[1]
    assert batch.fill_decodes((), 2).slots.tolist() == [-1, -1]


def test_what_drafts_or_does_not_sample_is_no_plain_decode(kv: KvBlocks) -> None:
    sequence = running(kv, 5, 1)
    assert not only_decodes([chunk_of(sequence, 4, 1, drafts=(1,))])
    assert not only_decodes([chunk_of(sequence, 2, 1)])
    assert not only_decodes([chunk_of(sequence, 3, 2)])
