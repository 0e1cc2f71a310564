"""BERT with the mean of its last layer, in plain numpy: what llama.cpp's vectors are held to.

Devlin et al. 2018, https://arxiv.org/abs/1810.04805; Reimers and Gurevych 2019 for the mean.
"""

import math

import numpy as np
from numpy.typing import NDArray

from tests.engines.llamacpp.bert_file import Tensors

Rows = NDArray[np.float32]

_EPSILON = 1e-12
_erf = np.vectorize(math.erf, otypes=[np.float32])


def embed(tensors: Tensors, token_ids: list[int], *, num_heads: int) -> Rows:
    """The vector of length 1 of one text."""
    network = Network(tensors, num_heads)
    mean = network.last_rows(token_ids).mean(axis=0)
    unit: Rows = mean / np.linalg.norm(mean)
    return unit


class Network:
    """The layers, by the names of Hugging Face's BertModel."""

    def __init__(self, tensors: Tensors, num_heads: int) -> None:
        self._tensors = tensors
        self._num_heads = num_heads

    def last_rows(self, token_ids: list[int]) -> Rows:
        """The last layer's row of each token."""
        words = self._tensors["embeddings.word_embeddings.weight"][token_ids]
        places = self._tensors["embeddings.position_embeddings.weight"][: len(token_ids)]
        first_part = self._tensors["embeddings.token_type_embeddings.weight"][0]
        rows = self._norm("embeddings.LayerNorm", words + places + first_part)
        block = 0
        while f"encoder.layer.{block}.output.dense.weight" in self._tensors:
            rows = self._block(f"encoder.layer.{block}", rows)
            block += 1
        return rows

    def _block(self, at: str, rows: Rows) -> Rows:
        attended = self._linear(f"{at}.attention.output.dense", self._attend(at, rows))
        rows = self._norm(f"{at}.attention.output.LayerNorm", rows + attended)
        wide = _gelu(self._linear(f"{at}.intermediate.dense", rows))
        return self._norm(f"{at}.output.LayerNorm", rows + self._linear(f"{at}.output.dense", wide))

    def _attend(self, at: str, rows: Rows) -> Rows:
        query, key, value = (
            self._linear(f"{at}.attention.self.{name}", rows)
            .reshape(len(rows), self._num_heads, -1)
            .swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        weights = np.exp(query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1]))
        mixed = weights / weights.sum(axis=-1, keepdims=True) @ value
        return mixed.swapaxes(0, 1).reshape(rows.shape)

    def _linear(self, name: str, rows: Rows) -> Rows:
        return rows @ self._tensors[f"{name}.weight"].T + self._tensors[f"{name}.bias"]

    def _norm(self, name: str, rows: Rows) -> Rows:
        centred = rows - rows.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(centred.var(axis=-1, keepdims=True) + _EPSILON)
        return centred / deviation * self._tensors[f"{name}.weight"] + self._tensors[f"{name}.bias"]


def _gelu(rows: Rows) -> Rows:
    return rows * (1 + _erf(rows / math.sqrt(2))) / 2
