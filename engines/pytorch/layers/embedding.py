"""Token ids to vectors, and vectors to logits."""

from msgspec import Struct
from torch import Tensor
from torch.nn import functional

from engines.pytorch.ingredients import Ingredients
from engines.pytorch.layers.shard import ALONE, Shard


class Embedding(Struct, frozen=True, kw_only=True):
    """A row [C] a token. `scale` multiplies it, rounded to the type of the rows."""

    rows: Tensor
    scale: float = 1.0

    def __call__(self, token_ids: Tensor) -> Tensor:
        """[T] to [T, C]."""
        found = functional.embedding(token_ids, self.rows)
        return found if self.scale == 1.0 else found * found.new_tensor(self.scale)


class Head(Struct, frozen=True, kw_only=True):
    """Scores of every token, float32; of a padded vocabulary only those that are tokens."""

    rows: Tensor
    num_tokens: int
    soft_cap: float = 0.0
    shard: Shard = ALONE

    def __call__(self, hidden: Tensor) -> Tensor:
        """[R, C] to [R, num_tokens]."""
        scores = self.shard.gather(functional.linear(hidden, self.rows))
        logits = scores[:, : self.num_tokens].float()
        return (logits / self.soft_cap).tanh() * self.soft_cap if self.soft_cap else logits


def load_embedding(made_of: Ingredients, *, scale: float = 1.0) -> Embedding:
    """All rows, in every shard: any of them may be asked for."""
    config = made_of.config
    rows = made_of.weights.whole("embed_tokens.weight", config.vocabulary_size, config.hidden_size)
    return Embedding(rows=rows, scale=scale)


def load_head(made_of: Ingredients, embedding: Embedding) -> Head:
    """This shard's rows; all of them where the vocabulary cannot be shared evenly."""
    config, weights = made_of.config, made_of.weights
    size = config.vocabulary_size
    shard = weights.shard if size % weights.shard.size == 0 else ALONE
    if config.is_tied:
        rows = embedding.rows[shard.part(size)]
    else:
        rows = weights.rows(["lm_head.weight"], [size], config.hidden_size, shard)
    return Head(
        rows=rows, num_tokens=made_of.num_tokens, soft_cap=config.logits_soft_cap, shard=shard
    )
