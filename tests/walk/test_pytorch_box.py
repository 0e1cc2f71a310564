"""A whole box whose GGUF model is run by the torch engine: `hisar up --runner pytorch`."""

from pathlib import Path

import openai
import pytest

from tests import small_model
from tests.appliance.commands.conftest import Hisar, free_port

pytestmark = pytest.mark.model

MODEL = "small"


def test_a_gguf_model_answers_on_torch(tmp_path: Path) -> None:
    hisar = Hisar(tmp_path)
    (hisar.home / "config.toml").write_text(
        "[engine]\ncontext_tokens = 256\nnum_slots = 2\n", encoding="utf-8"
    )
    hisar("models", "import", str(small_model.PATH), "--name", MODEL)
    port = free_port()
    with hisar.start(
        "up", "--runner", "pytorch", "--model", MODEL, "--port", str(port), "--json"
    ) as box:
        assert box.stdout is not None
        assert "ready" in box.stdout.readline()
        key = (hisar.home / "keys" / "local.key").read_text().strip()
        with openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key) as client:
            answer = client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "user", "content": "What is the capital of France?"}],
                temperature=0,
                max_tokens=12,
            )
        assert "Paris" in (answer.choices[0].message.content or "")
        states = hisar.json("models", "list")["models"]
        assert [state["name"] for state in states] == [MODEL]
        box.terminate()
