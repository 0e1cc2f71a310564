"""Embeddings of many texts in one request, against the same texts in one request each.

`python -m tests.bench.embeddings [ROUNDS]`: our box on all-MiniLM-L6-v2 in float32, one connection.
"""

import json
import time
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection
from typing import Any

from tests import embedding_model
from tests.bench.doors import Door, Load, our_box
from tests.bench.load import words
from tests.bench.real_box import MODEL
from tests.bench.report import NotMeasuredError, Result, at_least, run_alone

NUM_TEXTS = 128
WORDS_A_TEXT = 16
LOAD = Load(num_streams=1, context_tokens=512)


def measure(num_rounds: int) -> list[Result]:
    """Texts a second, both ways in turns."""
    if not embedding_model.is_here():
        raise NotMeasuredError("the model is not here; `python -m tests.embedding_model` makes it")
    batched: list[float] = []
    apart: list[float] = []
    with our_box(LOAD, embedding_model.PATH) as door:
        _rate(door, texts(0), texts_a_call=1)
        for turn in range(num_rounds):
            batched.append(_rate(door, texts(turn), texts_a_call=NUM_TEXTS))
            apart.append(_rate(door, texts(turn), texts_a_call=1))
    return [
        Result(
            what=f"embeddings, {NUM_TEXTS} texts a request",
            unit="texts/s",
            ours=batched,
            rival="one a request",
            theirs=apart,
            goal=at_least(2.0),
        )
    ]


def texts(turn: int) -> list[str]:
    """Short texts, no two alike."""
    return [f"{turn} {number} {words(WORDS_A_TEXT, number)}" for number in range(NUM_TEXTS)]


def _rate(door: Door, inputs: list[str], *, texts_a_call: int) -> float:
    headers = {"Authorization": f"Bearer {door.key}", "Content-Type": "application/json"}
    with closing(HTTPConnection("127.0.0.1", door.port)) as connection:
        started = time.perf_counter()
        for begin in range(0, len(inputs), texts_a_call):
            asked: dict[str, Any] = {
                "model": MODEL,
                "input": inputs[begin : begin + texts_a_call],
                "encoding_format": "base64",
            }
            connection.request("POST", "/v1/embeddings", json.dumps(asked), headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != HTTPStatus.OK:
                raise RuntimeError(f"embeddings were answered {answer.status}")
        return len(inputs) / (time.perf_counter() - started)


if __name__ == "__main__":
    run_alone(measure)
