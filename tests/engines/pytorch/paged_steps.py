"""Runs a model step by step through a paged cache whose blocks are small and lie in disorder."""

import torch
from torch import Tensor

from engines.pytorch.kv_cache import allocate
from engines.pytorch.models import Model
from engines.pytorch.step_inputs import StepInputs

BLOCK_SIZE = 4


class PagedSteps:
    """Sequences by name, each with the blocks it has been given."""

    def __init__(self, model: Model, *, num_blocks: int = 64) -> None:
        self.model = model
        self.cache = allocate(
            model.kv_shape(torch.float32),
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            device=torch.device("cpu"),
        )
        seeded = torch.Generator().manual_seed(0)
        self._free = torch.randperm(num_blocks, generator=seeded).tolist()
        self._blocks: dict[str, list[int]] = {}
        self._lengths: dict[str, int] = {}

    def step(self, new: dict[str, list[int]]) -> dict[str, Tensor]:
        """Compute the new tokens of some sequences; the logits after each of them."""
        positions, slots = [], []
        for name, token_ids in new.items():
            start = self._lengths.get(name, 0)
            for position in range(start, start + len(token_ids)):
                positions.append(position)
                slots.append(self._slot(name, position))
            self._lengths[name] = start + len(token_ids)
        lengths = [len(token_ids) for token_ids in new.values()]
        starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
        inputs = StepInputs(
            token_ids=torch.tensor([token for token_ids in new.values() for token in token_ids]),
            positions=torch.tensor(positions),
            slots=torch.tensor(slots),
            query_starts=starts,
            context_lengths=torch.tensor([self._lengths[n] for n in new], dtype=torch.int32),
            block_tables=self._tables(new),
            output_rows=torch.arange(len(positions)),
            max_query_length=max(lengths),
        )
        logits = self.model.forward(inputs, self.cache).split(lengths)
        return dict(zip(new, logits, strict=True))

    def _slot(self, name: str, position: int) -> int:
        blocks = self._blocks.setdefault(name, [])
        if position // BLOCK_SIZE == len(blocks):
            blocks.append(self._free.pop())
        return blocks[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE

    def _tables(self, new: dict[str, list[int]]) -> Tensor:
        width = max(len(self._blocks[name]) for name in new)
        rows = [(self._blocks[name] + [0] * width)[:width] for name in new]
        return torch.tensor(rows, dtype=torch.int32)
