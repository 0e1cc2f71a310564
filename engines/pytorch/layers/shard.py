"""Which part of a layer this process has, where several compute one model (Megatron-LM,
arXiv:1909.08053): matrices are split by rows, then by columns, and the results summed.
"""

from collections.abc import Callable
from typing import Final

from msgspec import Struct
from torch import Tensor

from appliance.errors import ConfigError


def _alone(tensor: Tensor) -> Tensor:
    return tensor


class Shard(Struct, frozen=True, kw_only=True):
    """The `rank`th of `size` equal parts.

    `reduce(x)` is the sum of every part's x; `gather(x [T, n])` is [T, size * n], every part's x
    side by side.
    """

    rank: int = 0
    size: int = 1
    reduce: Callable[[Tensor], Tensor] = _alone
    gather: Callable[[Tensor], Tensor] = _alone

    def part(self, size: int) -> slice:
        """The part of `size` things that is here."""
        share = self.share(size)
        return slice(self.rank * share, (self.rank + 1) * share)

    def share(self, size: int) -> int:
        """How many of `size` things are here. Raises ConfigError `engine.not_divisible`."""
        if size % self.size:
            raise ConfigError(
                "engine.not_divisible",
                f"the model has {size} of something that {self.size} devices cannot share evenly",
                hint="use a number of devices that divides the model's key-value heads",
            )
        return size // self.size


ALONE: Final = Shard()
