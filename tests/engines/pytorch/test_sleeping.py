"""Weights that sleep take nothing, and are the same when they wake."""

import numpy as np
import torch

from engines.pytorch.sleeping import Sleeper


def test_tensors_give_their_memory_back_and_are_themselves_again() -> None:
    weights = [torch.randn(5, 3), torch.arange(7, dtype=torch.int32)]
    scratch = torch.full((4,), torch.nan)
    before = [weight.clone() for weight in weights]
    view = weights[0][1:]
    sleeper = Sleeper(weights, [scratch])
    for _ in range(2):
        sleeper.sleep()
        assert all(tensor.untyped_storage().nbytes() == 0 for tensor in (*weights, scratch))
        sleeper.wake()
        assert all(map(torch.equal, weights, before))
        assert torch.equal(view, before[0][1:])
        assert torch.equal(scratch, torch.zeros(4))


def test_memory_that_is_not_torchs_own_stays() -> None:
    borrowed = torch.from_numpy(np.ones(4, np.float32))
    sleeper = Sleeper([borrowed], [torch.from_numpy(np.zeros(2, np.float32))])
    sleeper.sleep()
    sleeper.wake()
    assert borrowed.tolist() == [1.0] * 4
