"""Many small networks of which each token uses a few (arXiv:1701.06538, arXiv:2401.04088)."""

from collections.abc import Callable

import torch
from msgspec import Struct
from torch import Tensor
from torch.nn import functional

from engines.pytorch.ingredients import Ingredients
from engines.pytorch.layers.mlp import Mlp, load_mlp
from engines.pytorch.layers.packed import load_packed, unpack
from engines.pytorch.layers.shard import Shard
from engines.pytorch.model_config import ExpertsConfig
from engines.pytorch.weights import WeightLoader


class Experts(Struct, frozen=True, kw_only=True):
    """E experts of size I, of which a token uses `num_active`.

    - `router` [E, C]: how well each expert suits a token
    - `gate_up` [E, C, 2 I], `down` [E, I, C]: the layout of grouped products
    - `shared`, `shared_gate` [1, C]: the expert that all tokens use, and how much of it
    """

    router: Tensor
    gate_up: Tensor
    down: Tensor
    num_active: int
    normalises: bool
    activate: Callable[[Tensor], Tensor]
    shard: Shard
    shared: Mlp | None = None
    shared_gate: Tensor | None = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """[T, C] to [T, C]. No shape depends on who is chosen, and nothing waits for the device."""
        chosen, shares = self._route(hidden)
        order = chosen.flatten().argsort(stable=True)
        ends = self._ends(chosen)
        gate_up = functional.grouped_mm(hidden[order // self.num_active], self.gate_up, offs=ends)
        down = functional.grouped_mm(self.activate(gate_up), self.down, offs=ends)
        parts = torch.empty_like(down)
        parts[order] = down
        parts = parts.view(len(hidden), self.num_active, -1)
        mixed = (parts * shares.unsqueeze(-1).to(parts.dtype)).sum(1)
        return self._with_shared(hidden, self.shard.reduce(mixed))

    def _route(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Whom each token chooses and how much of each it takes, both [T, num_active]."""
        scores = functional.linear(hidden, self.router).float().softmax(-1)
        shares, chosen = scores.topk(self.num_active)
        if self.normalises:
            shares = shares / shares.sum(-1, keepdim=True)
        return chosen, shares

    def _ends(self, chosen: Tensor) -> Tensor:
        """Where each expert's rows end once they are sorted, int32 [E]."""
        counts = functional.one_hot(chosen.flatten(), len(self.router)).sum(0)
        return counts.cumsum(0).to(torch.int32)

    def _with_shared(self, hidden: Tensor, mixed: Tensor) -> Tensor:
        if self.shared is None or self.shared_gate is None:
            return mixed
        return mixed + functional.linear(hidden, self.shared_gate).sigmoid() * self.shared(hidden)


def load_experts(
    made_of: Ingredients,
    name: str,
    experts: ExpertsConfig,
    activate: Callable[[Tensor], Tensor],
) -> Experts:
    """The experts of that name."""
    weights, hidden_size = made_of.weights, made_of.config.hidden_size
    shared = shared_gate = None
    if experts.shared_size:
        shared = load_mlp(made_of, f"{name}.shared_expert", experts.shared_size, activate)
        shared_gate = weights.whole(f"{name}.shared_expert_gate.weight", 1, hidden_size)
    return Experts(
        router=weights.whole(f"{name}.gate.weight", experts.num_experts, hidden_size),
        gate_up=_load_gate_up(weights, name, hidden_size, experts),
        down=_load_down(weights, name, hidden_size, experts),
        num_active=experts.num_active,
        normalises=experts.normalises,
        activate=activate,
        shard=weights.shard,
        shared=shared,
        shared_gate=shared_gate,
    )


def _load_gate_up(
    weights: WeightLoader, name: str, hidden_size: int, experts: ExpertsConfig
) -> Tensor:
    share = weights.shard.share(experts.size)
    part = (weights.shard.part(experts.size),)
    stack = weights.empty(experts.num_experts, hidden_size, 2 * share)
    for number, expert in enumerate(stack):
        for start, which in ((0, "gate"), (share, "up")):
            matrix = f"{name}.experts.{number}.{which}_proj"
            found = _read(weights, matrix, (experts.size, hidden_size), part)
            expert[:, start : start + share] = found.T
    return weights.keep(stack)


def _load_down(
    weights: WeightLoader, name: str, hidden_size: int, experts: ExpertsConfig
) -> Tensor:
    part = (slice(0, hidden_size), weights.shard.part(experts.size))
    stack = weights.empty(experts.num_experts, weights.shard.share(experts.size), hidden_size)
    for number, expert in enumerate(stack):
        matrix = f"{name}.experts.{number}.down_proj"
        expert[:] = _read(weights, matrix, (hidden_size, experts.size), part).T
    return weights.keep(stack)


def _read(
    weights: WeightLoader, name: str, shape: tuple[int, int], part: tuple[slice, ...]
) -> Tensor:
    """One expert's matrix, unpacked: grouped products know no packed ones."""
    packed = load_packed(weights, name, *shape)
    return weights.read(f"{name}.weight", shape, part) if packed is None else unpack(packed)
