"""The llama.cpp engine: one model, one context of many slots, few llama_decodes a step.

llama.cpp's context is not thread-safe: one thread calls `execute`, and nothing else touches it.
"""

import ctypes
import os
from collections.abc import Sequence as Seq
from typing import Any, Final

import llama_cpp.llama_cpp as llama
import numpy as np
import psutil
from numpy.typing import NDArray

from appliance.errors import CatalogueError, EngineError
from engines.batch_invariance import is_batch_invariant
from engines.llamacpp.batch import Batch
from engines.llamacpp.calls import arrange
from engines.llamacpp.embedding import LlamaEmbedder, find_pooling
from engines.llamacpp.gguf_check import GgufFacts
from engines.llamacpp.kv_cells import KvCells, Seat
from engines.llamacpp.sizing import Sizes, choose_sizes
from engines.llamacpp.slot_memory import SlotMemory
from engines.llamacpp.tokenizer import LlamaTokenizer
from engines.llamacpp.weights import check_file, open_model
from engines.protocol import ModelFacts
from engines.row_answers import num_rows, read_answers
from engines.runner import Answer, Chunk, RowError, RunnerOptions, StepPlan

DEFAULT_STEP_TOKENS: Final = 256

_BF16: Final = 30  # ggml.h
_NO_ROWS: Final[NDArray[np.float32]] = np.empty((0, 0), np.float32)


class LlamaRunner:
    """The Runner of one GGUF model."""

    def __init__(self, model: Any, sizes: Sizes, options: RunnerOptions) -> None:  # noqa: ANN401
        self._model = model
        self.tokenizer = LlamaTokenizer(model)
        self.embedder = None
        self.step_tokens = options.step_tokens or DEFAULT_STEP_TOKENS
        self._batch = Batch(max(self.step_tokens, sizes.num_slots), sizes.slot_cells)
        self._context = _open_context(model, sizes, self.step_tokens, options)
        keeps_all = _can_trim(model) and not llama.llama_model_n_swa(model)
        weights_bytes = llama.llama_model_size(model)
        self._cells_per_call = weights_bytes // max(1, sizes.cell_bytes)
        self._memory = SlotMemory(self._context, is_all_in_state=keeps_all)
        self._view_key = (0, 0)
        self._view = _NO_ROWS
        self.kv = KvCells(
            sizes.num_slots,
            sizes.context_tokens,
            shares_prefixes=_can_trim(model),
            saved_tokens=sizes.saved_tokens if keeps_all else 0,
            num_left=1 if options.deterministic else 2,  # one alone is rounded in another way
        )
        self.facts = ModelFacts(
            model=options.model,
            runner="llamacpp",
            context_tokens=sizes.context_tokens,
            vocabulary_size=self.tokenizer.vocabulary_size,
            num_slots=sizes.num_slots,
            scores_prompts=True,
            verifies_drafts=_can_trim(model),
            is_batch_invariant=options.deterministic,
        )

    def execute(self, plan: StepPlan) -> Seq[Answer]:
        """Compute the plan in as few calls of llama_decode as `engines.llamacpp.calls` says.

        Where one fails, every sequence in it gets a RowError; what they had computed before stays
        in their slots, and what others hold is not touched.
        """
        self.kv.close_gaps()
        for command in self.kv.take_orders():
            self._memory.carry_out(command)
        slots = [chunk.sequence.kv.slot for chunk in plan.chunks]
        answers: dict[int, Answer] = {}
        for numbers in arrange(plan.chunks, slots, self._cells_per_call):
            answers.update(zip(numbers, self._call([plan.chunks[i] for i in numbers]), strict=True))
        return [answers[i] for i in range(len(slots))]

    def _call(self, chunks: list[Chunk]) -> Seq[Answer]:
        """One llama_decode, and what it says chunk by chunk."""
        self._batch.clear()
        for chunk in chunks:
            self._batch.add(chunk, chunk.sequence.kv.slot)
        status = llama.llama_decode(self._context, self._batch.struct)
        if status != 0:
            return [self._undo(chunk, status) for chunk in chunks]
        answers = read_answers(chunks, self._rows(sum(map(num_rows, chunks))))
        for chunk, answer in zip(chunks, answers, strict=True):
            if chunk.drafts:
                self._forget_drafts(chunk, answer)
        return answers

    def close(self) -> None:
        """Free the context, then the model."""
        llama.llama_free(self._context)
        llama.llama_model_free(self._model)

    def _undo(self, chunk: Chunk, status: int) -> RowError:
        seat: Seat = chunk.sequence.kv
        seat.is_broken = True
        self._memory.trim(seat.slot, chunk.start)
        return RowError(
            code="engine.decode_failed", message=f"llama.cpp could not compute ({status})"
        )

    def _forget_drafts(self, chunk: Chunk, answer: Answer) -> None:
        """Keep no more in the slot than is right."""
        num_computed = chunk.start + (len(answer) if isinstance(answer, tuple) else 1)
        seat: Seat = chunk.sequence.kv
        self._memory.trim(seat.slot, num_computed)

    def _rows(self, count: int) -> NDArray[np.float32]:
        """The logits that were asked for, in the order of the batch; valid until the next step."""
        if not count:
            return _NO_ROWS
        logits: Any = llama.llama_get_logits(self._context)
        address = ctypes.addressof(logits.contents)
        if (address, count) != self._view_key:  # making the view takes 60 us; it rarely changes
            shape = (count, self.tokenizer.vocabulary_size)
            self._view_key, self._view = (address, count), np.ctypeslib.as_array(logits, shape)
        return self._view


def start(options: RunnerOptions) -> LlamaRunner | LlamaEmbedder:
    """Check and open the model file and set up its context, ready for the first step.

    Raises CatalogueError for a file that cannot be used, MachineError or EngineError for a
    machine it does not fit, ConfigError for options it does not allow.
    """
    facts = check_file(options.path)
    if not options.deterministic:
        return _start(options, facts)
    for repacks in (True, False):  # repacked, K-quants have kernels of their own for many rows
        runner = _start(options, facts, repacks=repacks)
        if isinstance(runner, LlamaEmbedder) or is_batch_invariant(runner):
            return runner
        runner.close()
    raise EngineError(
        "engine.not_deterministic",
        f"{options.model} is computed differently alone and in a batch, in its format on this"
        " machine",
        hint="use a quantised format of the model, or set engine.deterministic to false",
    )


def _start(
    options: RunnerOptions, facts: GgufFacts, *, repacks: bool = True
) -> LlamaRunner | LlamaEmbedder:
    model = open_model(options.path, repacks=repacks)
    pooling = find_pooling(model)
    if pooling is not None:
        return LlamaEmbedder(model, pooling, options, facts.context_length)
    room_bytes = options.kv_room_bytes or psutil.virtual_memory().available
    sizes = choose_sizes(options, facts, room_bytes)
    return LlamaRunner(model, sizes, options)


def _open_context(model: Any, sizes: Sizes, step_tokens: int, options: RunnerOptions) -> Any:  # noqa: ANN401
    params = llama.llama_context_default_params()
    params.n_ctx = sizes.slot_cells * sizes.num_slots
    params.n_seq_max = sizes.num_slots
    params.n_batch = max(step_tokens, sizes.num_slots)
    params.n_ubatch = max(min(step_tokens, sizes.graph_tokens), sizes.num_slots)
    params.n_threads = params.n_threads_batch = options.num_threads or len(os.sched_getaffinity(0))
    # On a processor a step after 2,000 tokens takes 16 ms without flash attention and 39 with it;
    # prompts are computed 4 to 7 % slower.
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    if options.deterministic:
        # Of flash attention's three ways two want keys and values of one type; so there is one way
        # left for every shape. Without it, a row alone and several rows have different kernels.
        params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_ENABLED
        params.type_v = _BF16
    params.kv_unified = False
    params.no_perf = True
    context = llama.llama_init_from_model(model, params)
    if not context:
        raise EngineError(
            "engine.context_refused",
            f"llama.cpp cannot set up {sizes.num_slots} slots of {sizes.slot_cells} tokens",
            hint="set a smaller context_tokens or fewer slots for this model",
        )
    if llama.llama_model_has_encoder(model) or not llama.llama_get_memory(context):
        raise CatalogueError("model.not_generative", "the file holds a model that writes no text")
    return context


def _can_trim(model: Any) -> bool:  # noqa: ANN401
    """Whether the end of a sequence can be cut off its memory; recurrent states only forget all."""
    return not (llama.llama_model_is_recurrent(model) or llama.llama_model_is_hybrid(model))
