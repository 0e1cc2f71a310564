"""`python -m engines.llamacpp.optimise PATH --out FOLDER`: a model in several formats, measured.

Makes the copies in FOLDER, measures them and the original in turn (A B C A B C, one at a time),
and prints lines of JSON: steps, then the outcome or a refusal (`appliance.optimise_records`).
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import llama_cpp.llama_cpp as llama
import msgspec
import psutil

from appliance.errors import CatalogueError, HisarError
from appliance.optimise_records import MOST_SEQUENCES, FormatResult, Line, Outcome, Refusal, Step
from engines.llamacpp.embedding import find_pooling
from engines.llamacpp.gguf_check import GgufFacts
from engines.llamacpp.optimise_copies import FORMATS, Original, format_name, make_copies
from engines.llamacpp.optimise_decoder import SEQUENCE_TOKENS
from engines.llamacpp.optimise_quality import Quality, measure_quality, write_answers
from engines.llamacpp.optimise_speed import Round, measure_round, speed_of
from engines.llamacpp.weights import check_file, open_model

_COUNTS: Final = (1, 8, MOST_SEQUENCES)
# The part of the available memory that keys and values may take, as when a box starts a model.
_KV_SHARE: Final = 0.25


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m engines.llamacpp.optimise")
    parser.add_argument("path", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder for the copies")
    parser.add_argument("--threads", type=int, default=0, help="0: one for each core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=48, help="tokens a sequence decodes")
    parser.add_argument("--samples", type=int, default=0, help="of texts and prompts; 0: all")
    parser.add_argument("--sequences", type=int, default=MOST_SEQUENCES, help="at most together")
    parser.add_argument("--formats", default=",".join(FORMATS), help="copies, by commas")
    return parser.parse_args(arguments)


def optimise(options: argparse.Namespace, tell: Callable[[str], None]) -> Outcome:
    """Copy and measure. Raises CatalogueError, MachineError or EngineError."""
    facts = check_file(options.path)
    original = _look_at(options.path, facts)
    num_threads = options.threads or len(os.sched_getaffinity(0))
    wanted = options.formats.split(",")
    copies, left_out = make_copies(
        original, options.out, wanted=wanted, num_threads=num_threads, tell=tell
    )
    paths = {original.format: original.path, **copies}
    rounds = _measure_speed(options, paths, _counts(facts, options.sequences), num_threads, tell)
    qualities = _measure_quality(options, paths, original, num_threads, tell)
    return Outcome(
        results=tuple(
            _result(name, path, original, rounds[name], qualities[name])
            for name, path in paths.items()
        ),
        left_out=left_out,
        is_requantised=original.is_quantised,
    )


def _look_at(path: Path, facts: GgufFacts) -> Original:
    """Open the file once. Raises CatalogueError where there is nothing to choose."""
    model = open_model(path)
    try:
        if find_pooling(model) is not None or llama.llama_model_has_encoder(model):
            message = f"{path.name} writes no text: only models that do have formats to choose from"
            raise CatalogueError("model.not_optimisable", message)
        return Original(
            path=path,
            format=format_name(facts.file_type) or "original",
            num_weights=llama.llama_model_n_params(model),
        )
    finally:
        llama.llama_model_free(model)


def _counts(facts: GgufFacts, most: int) -> tuple[int, ...]:
    """The numbers of sequences that there is memory for; one there always is."""
    room_bytes = psutil.virtual_memory().available * _KV_SHARE
    sequence_bytes = SEQUENCE_TOKENS * facts.kv_bytes_per_token
    most = min(most, llama.llama_max_parallel_sequences())
    return tuple(n for n in _COUNTS if n == 1 or (n * sequence_bytes <= room_bytes and n <= most))


def _measure_speed(
    options: argparse.Namespace,
    paths: dict[str, Path],
    counts: tuple[int, ...],
    num_threads: int,
    tell: Callable[[str], None],
) -> dict[str, list[Round]]:
    rounds: dict[str, list[Round]] = {name: [] for name in paths}
    for number in range(1, options.rounds + 1):
        for name, path in paths.items():
            tell(f"round {number} of {options.rounds}: speed of {name}")
            rounds[name].append(
                measure_round(
                    path, counts=counts, num_tokens=options.tokens, num_threads=num_threads
                )
            )
    return rounds


def _measure_quality(
    options: argparse.Namespace,
    paths: dict[str, Path],
    original: Original,
    num_threads: int,
    tell: Callable[[str], None],
) -> dict[str, Quality]:
    tell(f"writing the answers of {original.format}")
    answers = write_answers(
        original.path,
        num_threads=num_threads,
        num_tokens=options.tokens,
        num_samples=options.samples,
    )
    qualities: dict[str, Quality] = {}
    for name, path in paths.items():
        tell(f"quality of {name}")
        qualities[name] = measure_quality(
            path, answers, num_samples=options.samples, num_threads=num_threads
        )
    return qualities


def _result(
    name: str, path: Path, original: Original, rounds: list[Round], quality: Quality
) -> FormatResult:
    return FormatResult(
        format=name,
        file=path.name,
        size_bytes=path.stat().st_size,
        is_original=path == original.path,
        decode={
            count: speed_of([one.decode[count] for one in rounds]) for count in rounds[0].decode
        },
        prompt=speed_of([one.prompt for one in rounds]),
        perplexity=quality.perplexity,
        equal_tokens=quality.equal_tokens,
    )


def main(arguments: list[str]) -> int:
    """Measure, and end quietly when whoever reads the lines is gone."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    options = parse(arguments)
    try:
        _write(optimise(options, lambda doing: _write(Step(doing=doing))))
    except HisarError as error:
        _write(Refusal(code=error.code, message=error.message, hint=error.hint))
        return error.exit_code
    return 0


def _write(line: Line) -> None:
    sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
