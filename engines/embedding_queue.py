"""Which inputs are embedded together: those of all who wait, in turn, as many as fit a batch."""

from collections import deque
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from appliance.embedding import Embeddings
from appliance.errors import EngineError
from appliance.generation import Usage
from engines.protocol import Answer, Refused
from engines.refusals import to_refused
from engines.replies import ToEmbed
from engines.runner import Embedder

_NOT_FINITE: Final = EngineError(
    "engine.row_not_finite", "the model computed a vector with numbers that are not finite"
)

Endings: TypeAlias = list[Answer | Refused]


class Job:
    """One call's inputs, and the vectors of those that are computed, in their order."""

    def __init__(self, call: ToEmbed) -> None:
        self.call_id = call.call_id
        self.inputs = call.inputs
        self.num_taken = 0
        self.vectors: list[bytes] = []

    @property
    def is_taken(self) -> bool:
        """Every input is computed, or in the batch that is."""
        return self.num_taken == len(self.inputs)

    def ending(self) -> Answer:
        """The answer, once every vector is there."""
        usage = Usage(prompt_tokens=sum(map(len, self.inputs)))
        embeddings = Embeddings(vectors=tuple(self.vectors), usage=usage)
        return Answer(call_id=self.call_id, reply=embeddings)


class EmbeddingQueue:
    """The calls that are not answered yet."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._jobs: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, call: ToEmbed) -> None:
        """Let a call wait for its turn."""
        self._jobs.append(Job(call))

    def drop(self, call_id: int) -> None:
        """Compute nothing more for a call, if it is here."""
        self._jobs = deque(job for job in self._jobs if job.call_id != call_id)

    def step(self, max_tokens: int) -> Endings:
        """Compute one batch of `max_tokens`, or of one input that is longer; what has ended."""
        jobs, inputs = self._take(max_tokens)
        if not inputs:
            return []
        try:
            rows = self._embedder.embed(inputs)
        except EngineError as error:
            return [self._refuse(job, error) for job in dict.fromkeys(jobs)]
        for job, vector in zip(jobs, to_unit(rows), strict=True):
            job.vectors.append(vector.tobytes())
        broken = dict.fromkeys(
            job for job, row in zip(jobs, rows, strict=True) if not np.isfinite(row).all()
        )
        refusals: Endings = [self._refuse(job, _NOT_FINITE) for job in broken]
        return refusals + self._finish()

    def _take(self, max_tokens: int) -> tuple[list[Job], list[list[int]]]:
        """An input of each call in turn, so that a short call does not wait for a long one."""
        turns = deque(self._jobs)
        self._jobs.rotate(-1)
        jobs: list[Job] = []
        inputs: list[list[int]] = []
        room = min(max_tokens, self._embedder.max_tokens)
        while turns and len(inputs) < self._embedder.max_inputs:
            job = turns[0]
            tokens = job.inputs[job.num_taken]
            if inputs and len(tokens) > room:
                break
            room -= len(tokens)
            job.num_taken += 1
            jobs.append(job)
            inputs.append(tokens)
            turns.rotate(-1)
            if job.is_taken:
                turns.remove(job)
        return jobs, inputs

    def _refuse(self, job: Job, error: EngineError) -> Refused:
        self._jobs.remove(job)
        return to_refused(job.call_id, error)

    def _finish(self) -> Endings:
        complete = [job for job in self._jobs if job.is_taken]
        for job in complete:
            self._jobs.remove(job)
        return [job.ending() for job in complete]


def to_unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Every row brought to length 1; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return np.asarray(rows / lengths, "<f4")
