"""Models that turn texts into vectors: one context of many sequences, emptied after each batch.

A GGUF file says how its model's vectors are pooled; one that says nothing is made to write text.
An input is computed in one piece, so the context is also the largest batch.
"""

import os
from collections.abc import Sequence as Seq
from typing import Any, Final

import llama_cpp.llama_cpp as llama
import numpy as np
from numpy.typing import NDArray

from appliance.errors import EngineError
from appliance.footprint import DEFAULT_CONTEXT_TOKENS
from engines.llamacpp.batch import Batch
from engines.llamacpp.kv_cells import KvCells
from engines.llamacpp.tokenizer import LlamaTokenizer
from engines.llamacpp.weights import read_metadata
from engines.protocol import ModelFacts
from engines.runner import RowError, RunnerOptions, StepPlan

MAX_INPUTS: Final = 64
_POOLINGS: Final[dict[str, int]] = {
    "1": llama.LLAMA_POOLING_TYPE_MEAN,
    "2": llama.LLAMA_POOLING_TYPE_CLS,
    "3": llama.LLAMA_POOLING_TYPE_LAST,
}


def find_pooling(model: Any) -> int | None:  # noqa: ANN401
    """How the model's vectors are pooled; None for one that makes none.

    An encoder that does not say is pooled by the mean.
    """
    architecture = read_metadata(model, "general.architecture")
    named = read_metadata(model, f"{architecture}.pooling_type")
    if named in _POOLINGS:
        return _POOLINGS[named]
    is_encoder = read_metadata(model, f"{architecture}.attention.causal") == "false"
    return _POOLINGS["1"] if is_encoder and not named else None


class LlamaEmbedder:
    """The Embedder, and the Runner, of one GGUF model that writes no text."""

    max_inputs: Final = MAX_INPUTS

    def __init__(
        self,
        model: Any,  # noqa: ANN401
        pooling: int,
        options: RunnerOptions,
        trained_tokens: int,
    ) -> None:
        context_tokens = choose_input_tokens(options.context_tokens, trained_tokens)
        self._model = model
        self._context = _open_context(model, pooling, context_tokens, options.num_threads)
        self._memory: Any = llama.llama_get_memory(self._context)
        self._batch = Batch(context_tokens, context_tokens)
        self.tokenizer = LlamaTokenizer(model)
        self.embedder = self
        self.max_tokens = self.step_tokens = context_tokens
        self.kv = KvCells(1, context_tokens, shares_prefixes=False)
        self.facts = ModelFacts(
            model=options.model,
            runner="llamacpp",
            context_tokens=context_tokens,
            vocabulary_size=self.tokenizer.vocabulary_size,
            num_slots=1,
            embedding_size=llama.llama_model_n_embd_out(model),
            generates=False,
        )

    def embed(self, inputs: Seq[list[int]]) -> NDArray[np.float32]:
        """The pooled vectors of inputs that are computed together."""
        if self._memory:
            llama.llama_memory_clear(self._memory, False)
        self._batch.clear()
        for number, token_ids in enumerate(inputs):
            self._batch.add_input(token_ids, number)
        compute = llama.llama_decode if self._memory else llama.llama_encode
        status = compute(self._context, self._batch.struct)
        if status != 0:
            message = f"llama.cpp could not compute ({status})"
            raise EngineError("engine.decode_failed", message)
        return np.stack([self._vector(number) for number in range(len(inputs))])

    def execute(self, plan: StepPlan) -> Seq[RowError]:
        """Nothing that a step loop wants can be had from this model."""
        refusal = RowError(code="request.model_cannot_generate", message="it writes no text")
        return [refusal] * len(plan.chunks)

    def close(self) -> None:
        """Free the context, then the model."""
        llama.llama_free(self._context)
        llama.llama_model_free(self._model)

    def _vector(self, number: int) -> NDArray[np.float32]:
        """A copy: libllama's own is overwritten by the next batch."""
        pointer: Any = llama.llama_get_embeddings_seq(self._context, number)
        return np.ctypeslib.as_array(pointer, (self.facts.embedding_size,)).copy()


def choose_input_tokens(asked: int, trained: int) -> int:
    """The longest input. A context meant for other models bounds it where this one has more."""
    return min(asked or DEFAULT_CONTEXT_TOKENS, trained or DEFAULT_CONTEXT_TOKENS)


def _open_context(model: Any, pooling: int, context_tokens: int, num_threads: int) -> Any:  # noqa: ANN401
    params = llama.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = context_tokens
    params.n_seq_max = MAX_INPUTS
    params.n_threads = params.n_threads_batch = num_threads or len(os.sched_getaffinity(0))
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_AUTO
    params.kv_unified = True
    params.embeddings = True
    params.pooling_type = pooling
    params.no_perf = True
    context = llama.llama_init_from_model(model, params)
    if not context:
        raise EngineError(
            "engine.context_refused",
            f"llama.cpp cannot set up a context of {context_tokens} tokens",
            hint="set a smaller context_tokens",
        )
    return context
