"""The torch engine: one model on one device, its keys and values in blocks, a forward pass a step.

On a GPU with Triton's kernels, and steps that only decode as captured graphs; on a processor with
the same operations in plain torch. One thread calls `execute`; nothing else touches the device.
"""

import logging
from collections.abc import Sequence as Seq
from typing import Final

import psutil
import torch
from torch import Tensor

from appliance.errors import EngineError
from engines.batch_invariance import is_batch_invariant
from engines.context_tokens import choose_context_tokens
from engines.protocol import ModelFacts
from engines.pytorch.choosing import Chooser
from engines.pytorch.device import choose_device, kv_dtype, ops_for, weights_dtype
from engines.pytorch.graphs import DecodeGraphs
from engines.pytorch.kv_blocks import BLOCK_TOKENS, KvBlocks
from engines.pytorch.kv_cache import LayerCache, allocate
from engines.pytorch.memory_profile import measure_use
from engines.pytorch.memory_sizes import GPU_SLOTS, Sizes, choose_cpu_sizes, choose_gpu_sizes
from engines.pytorch.models import Model, load_model
from engines.pytorch.offload import HostBlocks
from engines.pytorch.sleeping import Sleeper
from engines.pytorch.step_batch import StepBatch, only_decodes
from engines.pytorch.step_inputs import StepInputs
from engines.pytorch.tokenizer import load_tokenizer
from engines.runner import Answer, Chunk, RowError, RunnerOptions, StepPlan, Tokenizer

CPU_STEP_TOKENS: Final = 256
GPU_STEP_TOKENS: Final = 8192
# Steps of more sequences take so long that launching their kernels one by one is hidden.
_MOST_IN_A_GRAPH: Final = 256
_OUT_OF_MEMORY: Final = RowError(
    code="engine.step_out_of_memory", message="the device had no memory for this request's step"
)

_log: Final = logging.getLogger(__name__)


class TorchRunner:
    """The Runner of one model in torch."""

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        sizes: Sizes,
        options: RunnerOptions,
        device: torch.device,
    ) -> None:
        self.tokenizer = tokenizer
        self.embedder = None
        self.step_tokens = _step_tokens(options, device)
        shape = model.kv_shape(kv_dtype(device))
        block_bytes = BLOCK_TOKENS * shape.token_bytes
        self.kv = KvBlocks(
            sizes.num_blocks,
            num_slots=sizes.num_slots,
            context_tokens=sizes.context_tokens,
            num_places=sizes.num_places,
        )
        self.facts = ModelFacts(
            model=options.model,
            runner="pytorch",
            context_tokens=sizes.context_tokens,
            vocabulary_size=tokenizer.vocabulary_size,
            num_slots=sizes.num_slots,
            scores_prompts=True,
            verifies_drafts=True,
            is_batch_invariant=options.deterministic,
            kv_bytes=0 if device.type == "cuda" else sizes.num_blocks * block_bytes,
        )
        self._model = model
        self._device = device
        self._cache = allocate(
            shape, num_blocks=sizes.num_blocks, block_size=BLOCK_TOKENS, device=device
        )
        self._host_blocks = HostBlocks(self._cache, sizes.num_places)
        self._sleeper = Sleeper(model.tensors, _tensors(self._cache))
        self._batch = StepBatch(self.kv, step_tokens=self.step_tokens, device=device)
        self._chooser = Chooser(device)
        self._graphs = self._capture()

    @torch.inference_mode()
    def execute(self, plan: StepPlan) -> Seq[Answer]:
        """Compute the plan in one forward pass.

        Where the device has no memory for it, the largest chunk fails and the others are computed.
        """
        self._host_blocks.carry_out(self.kv.take_copies())
        try:
            return self._chooser.read(plan.chunks, self._compute(plan.chunks))
        except torch.OutOfMemoryError:
            _log.warning("no memory for a step of %d tokens", plan.num_tokens)
        return self._without_largest(plan)

    def close(self) -> None:
        """Let go of what lies on the device."""
        self._graphs = None
        self._cache = ()
        _empty_pool(self._device)

    def sleep(self) -> None:
        """Give the device's memory back, while nothing runs. What was cached is forgotten."""
        self.kv.forget_all()
        self._graphs = None
        self._sleeper.sleep()
        _empty_pool(self._device)

    def wake(self) -> None:
        """Be as after the start."""
        self._sleeper.wake()
        self._graphs = self._capture()

    def _compute(self, chunks: Seq[Chunk]) -> Tensor:
        """The rows of logits that are wanted."""
        if not only_decodes(chunks):
            return self._forward(self._batch.fill(chunks))
        size = self._graphs.size_for(len(chunks)) if self._graphs else None
        inputs = self._batch.fill_decodes(chunks, size or len(chunks))
        if self._graphs is None or size is None:
            return self._forward(inputs)
        return self._graphs.replay(size)[: len(chunks)]

    def _forward(self, inputs: StepInputs) -> Tensor:
        return self._model.forward(inputs, self._cache)

    def _without_largest(self, plan: StepPlan) -> list[Answer]:
        _empty_pool(self._device)
        largest = max(
            plan.chunks, key=lambda chunk: (chunk.length + len(chunk.drafts), chunk.start)
        )
        others = tuple(chunk for chunk in plan.chunks if chunk is not largest)
        answers = iter(self.execute(StepPlan(chunks=others)) if others else ())
        return [_OUT_OF_MEMORY if chunk is largest else next(answers) for chunk in plan.chunks]

    @torch.inference_mode()
    def _capture(self) -> DecodeGraphs | None:
        """Graphs of steps that only decode, where there are graphs."""
        if self._device.type != "cuda":
            return None
        most = min(self.facts.num_slots, _MOST_IN_A_GRAPH)
        return DecodeGraphs(self._forward, lambda size: self._batch.fill_decodes((), size), most)


def start(options: RunnerOptions) -> TorchRunner:
    """Load the model and set up its memory, ready for the first step.

    Raises CatalogueError for files that cannot be used, MachineError or EngineError for a machine
    that the model does not fit, ConfigError for options that it does not allow.
    """
    device = choose_device(options.num_threads)
    tokenizer = load_tokenizer(options.path)
    model = load_model(
        options.path,
        dtype=weights_dtype(device),
        device=device,
        ops=ops_for(device),
        num_tokens=tokenizer.vocabulary_size,
        context_tokens=options.context_tokens,
    )
    runner = TorchRunner(model, tokenizer, _sizes(model, options, device), options, device)
    if options.deterministic and not is_batch_invariant(runner):
        runner.close()
        raise EngineError(
            "engine.not_deterministic",
            f"torch computes {options.model} differently alone and in a batch on this machine",
            hint="run a GGUF file of it on llama.cpp, or set engine.deterministic to false",
        )
    return runner


def _sizes(model: Model, options: RunnerOptions, device: torch.device) -> Sizes:
    shape = model.kv_shape(kv_dtype(device))
    trained = model.facts.context_length
    if device.type != "cuda":
        return choose_cpu_sizes(
            options,
            trained=trained,
            token_bytes=shape.token_bytes,
            room_bytes=options.kv_room_bytes or psutil.virtual_memory().available,
        )
    use = measure_use(
        model,
        shape,
        step_tokens=_step_tokens(options, device),
        num_slots=options.num_slots or GPU_SLOTS,
        context_tokens=choose_context_tokens(options.context_tokens, trained),
    )
    return choose_gpu_sizes(options, trained=trained, token_bytes=shape.token_bytes, use=use)


def _step_tokens(options: RunnerOptions, device: torch.device) -> int:
    usual = GPU_STEP_TOKENS if device.type == "cuda" else CPU_STEP_TOKENS
    return options.step_tokens or usual


def _tensors(cache: tuple[LayerCache, ...]) -> list[Tensor]:
    return [tensor for layer in cache for tensor in layer.tensors]


def _empty_pool(device: torch.device) -> None:
    """Give memory that torch keeps for later use back to the device."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
