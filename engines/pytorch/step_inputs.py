"""The tensors that one step is computed from, all on the model's device."""

from msgspec import Struct
from torch import Tensor


class StepInputs(Struct, frozen=True, kw_only=True):
    """T tokens of S sequences, sequence by sequence, of which R rows of logits are wanted.

    - `token_ids`, `positions`: int64 [T]
    - `slots`: int64 [T], where a token's key and value go: block * block_size + offset in it; -1
      for padding, which is stored nowhere
    - `query_starts`: int32 [S + 1], where each sequence's tokens begin in [0, T]
    - `context_lengths`: int32 [S], the tokens a sequence has in the cache after this step, its new
      ones included; 0 for padding, whose rows come out as zeros
    - `block_tables`: int32 [S, B], the blocks of each sequence in order, any number after its last
    - `output_rows`: int64 [R], rows in [0, T)
    - `max_query_length`: most new tokens of any one sequence; 1 for a step that only decodes
    """

    token_ids: Tensor
    positions: Tensor
    slots: Tensor
    query_starts: Tensor
    context_lengths: Tensor
    block_tables: Tensor
    output_rows: Tensor
    max_query_length: int
