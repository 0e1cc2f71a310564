"""The least that decoding with llama.cpp can cost: llama_decode and argmax in a loop.

`python -m tests.bench.bare_loop MODEL --sequences 8` prints one JSON line. No server, no text, no
scheduler: what a whole box is measured against.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama
import numpy as np

from appliance.environment import worker_environment
from engines.llamacpp.library import load_library


def decode_rate(
    path: Path,
    *,
    num_sequences: int,
    num_tokens: int,
    prompt_tokens: int,
    is_unified: bool = False,
) -> float:
    """Tokens a second of `num_sequences` greedy sequences, prompts not counted."""
    model = llama.llama_model_load_from_file(os.fsencode(path), llama.llama_model_default_params())
    params = llama.llama_context_default_params()
    params.n_ctx = 1024 * num_sequences
    params.n_seq_max = num_sequences
    params.n_batch = params.n_ubatch = 512
    params.n_threads = params.n_threads_batch = len(os.sched_getaffinity(0))
    params.kv_unified = is_unified
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.no_perf = True
    context = llama.llama_init_from_model(model, params)
    size = llama.llama_vocab_n_tokens(llama.llama_model_get_vocab(model))
    batch = llama.llama_batch_init(512, 0, 1)
    for sequence in range(num_sequences):
        _fill(batch, [(100 + i, i, sequence, i == prompt_tokens - 1) for i in range(prompt_tokens)])
        _decode(context, batch)
    tokens = [500] * num_sequences
    started = time.perf_counter()
    for step in range(num_tokens):
        position = prompt_tokens + step
        _fill(batch, [(token, position, i, True) for i, token in enumerate(tokens)])
        _decode(context, batch)
        logits: Any = llama.llama_get_logits(context)
        rows = np.ctypeslib.as_array(logits, (num_sequences, size))
        tokens = rows.argmax(axis=1).tolist()
    elapsed = time.perf_counter() - started
    llama.llama_batch_free(batch)
    llama.llama_free(context)
    llama.llama_model_free(model)
    return num_sequences * num_tokens / elapsed


def rate_apart(path: Path, *, num_sequences: int, num_tokens: int) -> float:
    """The same in a process and an environment like a worker's."""
    command = [sys.executable, "-m", "tests.bench.bare_loop", str(path)]
    done = subprocess.run(
        [*command, "--sequences", str(num_sequences), "--tokens", str(num_tokens)],
        stdout=subprocess.PIPE,
        env=worker_environment(),
        check=True,
    )
    measured: float = json.loads(done.stdout)["tokens_per_s"]
    return measured


def _fill(batch: Any, rows: list[tuple[int, int, int, bool]]) -> None:
    for at, (token, position, sequence, wants_logits) in enumerate(rows):
        batch.token[at] = token
        batch.pos[at] = position
        batch.n_seq_id[at] = 1
        batch.seq_id[at][0] = sequence
        batch.logits[at] = wants_logits
    batch.n_tokens = len(rows)


def _decode(context: Any, batch: Any) -> None:
    status = llama.llama_decode(context, batch)
    if status:
        raise RuntimeError(f"llama_decode answered {status}")


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--sequences", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    arguments = parser.parse_args()
    load_library()
    rate = decode_rate(
        arguments.model,
        num_sequences=arguments.sequences,
        num_tokens=arguments.tokens,
        prompt_tokens=arguments.prompt_tokens,
    )
    print(json.dumps({"tokens_per_s": rate}))


if __name__ == "__main__":
    main()
