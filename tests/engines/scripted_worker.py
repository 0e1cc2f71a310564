"""A worker that misbehaves on command: `scripted_worker.py BEHAVIOUR --fd N ... --path PATH ...`.

crash         ends at once with status 3
refuse        says that its model can never be loaded, and ends
silent        never says a word and does not leave when asked to
garbage       sends what is no frame
ready         becomes ready once the file PATH exists, then answers each request with its id
deaf          becomes ready and never answers anything
"""

import socket
import sys
import time
from pathlib import Path

import msgspec

from appliance.generation import Finished, TextDelta, Usage
from engines.protocol import (
    Drain,
    Events,
    FromWorker,
    Generate,
    ModelFacts,
    Ready,
    Refused,
    ToWorker,
    decode_body,
    encode_frame,
    split_frames,
)

FACTS = ModelFacts(model="m", runner="scripted", context_tokens=8, vocabulary_size=8, num_slots=1)


class ScriptedWorker:
    """One worker's side of the socket pair."""

    def __init__(self, link: socket.socket, path: Path) -> None:
        self.link = link
        self.path = path

    def say(self, message: FromWorker) -> None:
        """Send a message to the host."""
        self.link.sendall(encode_frame(message))

    def crash(self) -> None:
        """End at once."""
        sys.exit(3)

    def refuse(self) -> None:
        """The model can never be loaded."""
        self.say(Refused(call_id=0, code="model.broken", message="the file is cut short"))

    def silent(self) -> None:
        """Neither speak nor leave."""
        while True:
            time.sleep(60)

    def garbage(self) -> None:
        """Send what is no frame."""
        self.link.sendall(b"\xff" * 100)
        self.silent()

    def deaf(self) -> None:
        """Be ready, and never answer."""
        self.say(Ready(facts=FACTS))
        self.silent()

    def ready(self) -> None:
        """Be ready once the file exists, and answer."""
        while not self.path.exists():
            time.sleep(0.01)
        self.say(Ready(facts=FACTS))
        buffer = bytearray()
        decoder = msgspec.msgpack.Decoder(ToWorker)
        while data := self.link.recv(65536):
            buffer += data
            for body in split_frames(buffer):
                message = decode_body(decoder, body)
                if isinstance(message, Drain):
                    return
                if isinstance(message, Generate):
                    self.answer(message.request.id)

    def answer(self, key: str) -> None:
        """The whole answer to a request."""
        text = TextDelta(index=0, text=key)
        self.say(Events(batch=((key, text), (key, Finished(usage=Usage())))))


if __name__ == "__main__":
    words = sys.argv
    with socket.socket(fileno=int(words[words.index("--fd") + 1])) as link:
        worker = ScriptedWorker(link, Path(words[words.index("--path") + 1]))
        getattr(worker, words[1])()
