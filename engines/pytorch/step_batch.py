"""A step's plan as tensors: filled in numpy, in memory that is used again for every step.

On a GPU the arrays lie in pinned memory and are copied into tensors that never move, while the
processor goes on: nobody waits, and a captured graph finds its inputs where they were.
"""

from collections.abc import Sequence as Seq
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engines.pytorch.kv_blocks import KvBlocks
from engines.pytorch.step_inputs import StepInputs
from engines.row_answers import num_rows
from engines.runner import Chunk

_NO_SLOT: Final = -1


def only_decodes(chunks: Seq[Chunk]) -> bool:
    """Whether each of the chunks is one token after which the next is chosen."""
    return all(chunk.samples and chunk.length == 1 and not chunk.drafts for chunk in chunks)


class StepBatch:
    """Room for the steps of one runner; what a fill answers is valid until the next one."""

    def __init__(self, kv: KvBlocks, *, step_tokens: int, device: torch.device) -> None:
        self._kv = kv
        num_slots, width = kv.tables.shape
        most_rows = max(step_tokens, num_slots)
        self._token_ids = _Field((most_rows,), torch.int64, device)
        self._positions = _Field((most_rows,), torch.int64, device)
        self._slots = _Field((most_rows,), torch.int64, device)
        self._output_rows = _Field((most_rows,), torch.int64, device)
        self._query_starts = _Field((num_slots + 1,), torch.int32, device)
        self._context_lengths = _Field((num_slots,), torch.int32, device)
        self._block_tables = _Field((num_slots, width), torch.int32, device)
        self._counting = np.arange(most_rows + 1)
        self._sent: torch.cuda.Event | None = None
        if device.type == "cuda":
            self._sent = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def fill(self, chunks: Seq[Chunk]) -> StepInputs:
        """The inputs of any step."""
        self._wait_until_sent()
        lengths = np.array([chunk.length + len(chunk.drafts) for chunk in chunks])
        starts = np.array([chunk.start for chunk in chunks])
        ends = np.cumsum(lengths)
        num_tokens, num_sequences = int(ends[-1]), len(chunks)
        of_sequence = np.repeat(self._counting[:num_sequences], lengths)
        positions = self._positions.array[:num_tokens]
        positions[:] = self._counting[:num_tokens] + (starts - ends + lengths)[of_sequence]
        self._token_ids.array[:num_tokens] = [
            token_id for chunk in chunks for token_id in _token_ids(chunk)
        ]
        self._query_starts.array[1 : num_sequences + 1] = ends
        self._context_lengths.array[:num_sequences] = starts + lengths
        num_blocks = self._fill_tables(chunks, positions)
        self._fill_slots(positions, of_sequence)
        num_outputs = self._fill_output_rows(chunks, ends)
        return self._send(
            num_tokens, num_sequences, num_blocks, num_outputs, max_query_length=int(lengths.max())
        )

    def fill_decodes(self, chunks: Seq[Chunk], num_padded: int) -> StepInputs:
        """The inputs of a step that only decodes, with padding up to `num_padded` sequences.

        Padding is stored nowhere and sees nothing. Block tables have their full width.
        """
        self._wait_until_sent()
        num_sequences = len(chunks)
        positions = self._positions.array[:num_sequences]
        positions[:] = [chunk.start for chunk in chunks]
        self._token_ids.array[:num_sequences] = [chunk.sequence.token_ids[-1] for chunk in chunks]
        self._context_lengths.array[:num_sequences] = positions + 1
        self._fill_tables(chunks, positions)
        self._fill_slots(positions, self._counting[:num_sequences])
        self._pad(num_sequences, num_padded)
        self._query_starts.array[: num_padded + 1] = self._counting[: num_padded + 1]
        self._output_rows.array[:num_padded] = self._counting[:num_padded]
        width = self._kv.tables.shape[1]
        return self._send(num_padded, num_padded, width, num_padded, max_query_length=1)

    def _fill_tables(self, chunks: Seq[Chunk], positions: NDArray[np.int64]) -> int:
        """The sequences' block tables side by side, as far as the longest one goes: how far."""
        num_blocks = int(positions.max(initial=0)) // self._kv.block_tokens + 1
        rows = [chunk.sequence.kv.row for chunk in chunks]
        tables = self._kv.tables[:, :num_blocks]
        self._block_tables.array[: len(rows), :num_blocks] = tables[rows]
        return num_blocks

    def _fill_slots(self, positions: NDArray[np.int64], of_sequence: NDArray[np.int64]) -> None:
        blocks, offsets = np.divmod(positions, self._kv.block_tokens)
        slots = self._slots.array[: len(positions)]
        slots[:] = self._block_tables.array[of_sequence, blocks]
        slots *= self._kv.block_tokens
        slots += offsets

    def _fill_output_rows(self, chunks: Seq[Chunk], ends: NDArray[np.int64]) -> int:
        counts = np.array([num_rows(chunk) for chunk in chunks])
        until = np.cumsum(counts)
        num_outputs = int(until[-1])
        first = np.repeat(ends - until, counts)
        self._output_rows.array[:num_outputs] = first + self._counting[:num_outputs]
        return num_outputs

    def _pad(self, begin: int, end: int) -> None:
        for field in (self._token_ids, self._positions, self._context_lengths, self._block_tables):
            field.array[begin:end] = 0
        self._slots.array[begin:end] = _NO_SLOT

    def _send(
        self,
        num_tokens: int,
        num_sequences: int,
        num_blocks: int,
        num_outputs: int,
        *,
        max_query_length: int,
    ) -> StepInputs:
        inputs = StepInputs(
            token_ids=self._token_ids.send(num_tokens),
            positions=self._positions.send(num_tokens),
            slots=self._slots.send(num_tokens),
            query_starts=self._query_starts.send(num_sequences + 1),
            context_lengths=self._context_lengths.send(num_sequences),
            block_tables=self._block_tables.send(num_sequences, num_blocks),
            output_rows=self._output_rows.send(num_outputs),
            max_query_length=max_query_length,
        )
        if self._sent is not None:
            self._sent.record()
        return inputs

    def _wait_until_sent(self) -> None:
        """A step that samples nothing is not waited for: its copies may not have begun yet."""
        if self._sent is not None:
            self._sent.synchronize()


class _Field:
    """One tensor of the inputs: where it is filled in, and where the model reads it."""

    def __init__(self, size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._host = torch.zeros(size, dtype=dtype, pin_memory=device.type == "cuda")
        self._device = self._host if device.type == "cpu" else self._host.to(device)
        self.array = self._host.numpy()

    def send(self, *shape: int) -> Tensor:
        """The first `shape` of what is filled in, on the device once its stream gets there."""
        part = tuple(slice(length) for length in shape)
        if self._device is not self._host:
            self._device[part].copy_(self._host[part], non_blocking=True)
        return self._device[part]


def _token_ids(chunk: Chunk) -> Seq[int]:
    known = chunk.sequence.token_ids[chunk.start : chunk.start + chunk.length]
    return [*known, *chunk.drafts] if chunk.drafts else known
