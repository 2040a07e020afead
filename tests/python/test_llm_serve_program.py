"""`pyflame serve` as a program: how it starts, and how it ends at a signal. Real sockets."""
import json
import logging
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest

for package in ("regex", "jinja2", "aiohttp", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
from llm_client import CHAT, COMPLETE, ECHO, HELLO, Running, everything_is_free, lm, start, text_of, until  # noqa: E402, F401
from pyflame.llm.serving._log import JsonLines  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402

# The end.


def test_a_graceful_end(start):
    echo = start(most=2)
    stream = echo.stream(CHAT, HELLO)
    first = [next(stream)]
    drained = echo.begin(echo.server.drain(60))
    until(lambda: echo.server.is_draining)
    assert echo.error(CHAT, HELLO, 503)["code"] == "server_ends" and echo.ask("/health", status=503) == {"status": "ends"}
    assert echo.raw("/metrics")[0] == 200 and not drained.done()
    echo.engine.allow()
    assert text_of(first + stream.rest()) == ECHO and drained.result(60) is True


def test_an_end_that_does_not_wait(start):
    echo = start(most=2)
    stream = echo.stream(CHAT, HELLO)
    next(stream)
    with ThreadPoolExecutor(1) as pool:
        whole = pool.submit(echo.error, CHAT, HELLO, 503)
        until(lambda: len(echo.engine.requests) == 2)
        assert echo.call(echo.server.drain(0.01)) is False
        echo.call(echo.server.stop())
        assert whole.result(60)["code"] == "server_ends"
    assert stream.rest()[-1]["error"]["code"] == "server_ends"
    everything_is_free(echo)


class Program:
    """`python -m pyflame.llm.serving` and what it writes to standard error, or to another output."""

    def __init__(self, *words, output="stderr", **environment):
        self.process = subprocess.Popen([sys.executable, "-m", "pyflame.llm.serving", *map(str, words)], **{output: subprocess.PIPE}, text=True, env={**os.environ, "PYFLAME_NUM_THREADS": "1", **environment})
        self.lines = []
        self._reader = threading.Thread(target=lambda: self.lines.extend(iter(getattr(self.process, output).readline, "")), daemon=True)
        self._reader.start()

    def find(self, pattern):
        until(lambda: self.process.poll() is not None or any(re.search(pattern, line) for line in list(self.lines)))
        return next(re.search(pattern, line) for line in [*self.lines, f"it ended: {self.lines}"] if re.search(pattern, line) or line.startswith("it ended"))

    def end(self):
        code = self.process.wait(60)
        self._reader.join(60)
        return code


@pytest.fixture
def served(tmp_path):
    started = []

    def begin(*words, **environment):
        folder = small.write_random_model(tmp_path / "small", seed=3, max_position_embeddings=1 << 20)
        started.append(Program("--model", folder, "--port", 0, *words, **environment))
        return started[-1]

    yield begin
    for p in started:
        p.process.kill()
        p.process.wait()


def test_the_program(served):
    p = served("--max_model_len", 2000, "--max_num_seqs", 2, "--swap_space", 0.5, "--cpu_offload_gb", 1, "--kv_cache_dtype", "int8", PYFLAME_API_KEY="secret")
    port = int(p.find(r"small is at http://127.0.0.1:(\d+)").group(1))
    assert p.find("try: curl .*Bearer KEY") and any("loading" in line for line in p.lines) and not any("secret" in line or "WARNING" in line for line in p.lines)
    client = Running.__new__(Running)
    client.port = port
    key = {"Authorization": "Bearer secret"}
    assert client.ask("/v1/models", headers=key)["data"][0]["max_model_len"] == 2000 and client.error(CHAT, HELLO, 401)
    assert b'vllm:cpu_cache_usage_perc{model_name="small"} 0.0' in client.raw("/metrics", headers=key)[2]
    stream = client.stream(COMPLETE, {"prompt": "x", "max_tokens": 300, "ignore_eos": True, "stream_options": {"include_usage": True}}, headers=key)
    next(stream)
    p.process.send_signal(signal.SIGTERM)
    p.find("SIGTERM: new requests are refused; answers that are finished first, for at most 30 s: [01];")
    assert stream.rest()[-1]["usage"]["completion_tokens"] == 300
    assert p.end() == 0 and "every answer was finished" in p.lines[-1]


def test_a_cache_that_shares_no_beginnings(served):
    body = {"prompt": list(range(5, 55)), "max_tokens": 2, "ignore_eos": True}
    for words, cached in ((["--no_enable_prefix_caching"], 0), (["--enable_prefix_caching"], 48)):
        p = served("--max_model_len", 2000, *words)
        client = Running.__new__(Running)
        client.port = int(p.find(r"small is at http://127.0.0.1:(\d+)").group(1))
        client.ask(COMPLETE, body)
        assert client.ask(COMPLETE, body)["usage"]["prompt_tokens_details"] == {"cached_tokens": cached}


@pytest.mark.parametrize("words, message", [
    (["--gpu_memory_utilization", 0.9], "gpu_memory_utilization is the share of a GPU's memory; got 0.9 and the device cpu"),
    (["--gpu_memory_utilization", 0], "gpu_memory_utilization is out of range; got 0.0"),
    (["--runner", "pooling", "--gpu_memory_utilization", 0.9], "--gpu_memory_utilization belongs to models that write texts; got 0.9 with one for embeddings"),
    (["--runner", "pooling", "--no_enable_prefix_caching"], "--no_enable_prefix_caching belongs to models that write texts"),
])
def test_options_of_the_cache_that_do_not_fit(served, words, message):
    p = served("--device", "cpu", *words)
    assert p.end() == 1 and message in "".join(p.lines)


def test_each_line_of_the_log_is_an_object_with_json(served):
    p = served("--host", "0.0.0.0", "--max_model_len", 2000, "--max_num_seqs", 2, "--json", output="stdout")
    client = Running.__new__(Running)
    client.port = int(p.find(r'"url": "http://0.0.0.0:(\d+)"').group(1))
    client.ask(COMPLETE, {"prompt": "x", "max_tokens": 5, "ignore_eos": True}, headers={"X-Request-Id": "mine"})
    assert client.raw("/nothing")[0] == 404
    p.find('"status": 404')
    p.process.send_signal(signal.SIGTERM)
    assert p.end() == 0
    lines = [json.loads(line) for line in p.lines]
    events = {line["event"]: line for line in lines}
    assert [line["event"] for line in lines if line["event"] != "message"] == ["loading", "loaded", "start", "example", "no_api_key", "request", "request", "drain", "end"]
    assert all(datetime.fromisoformat(line["time"]).utcoffset().total_seconds() == 0 and line["message"] for line in lines) and events["no_api_key"]["level"] == "WARNING"
    assert (events["start"]["model"], events["start"]["port"]) == ("small", client.port) and events["drain"]["signal"] == "SIGTERM" and events["end"]["unfinished_answers"] == 0
    first = next(line for line in lines if line.get("request_id") == "mine")
    assert (first["method"], first["path"], first["status"], first["completion_tokens"]) == ("POST", COMPLETE, 200, 5) and first["prompt_tokens"] > 0 and first["seconds"] > 0


def test_an_error_in_the_log_has_its_traceback():
    try:
        raise KeyError("mine")
    except KeyError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "%s failed", ("it",), sys.exc_info())
    found = json.loads(JsonLines().format(record))
    assert (found["level"], found["event"], found["message"]) == ("ERROR", "message", "it failed") and found["exception"].endswith("KeyError: 'mine'")


def test_a_second_signal_ends_at_once(served):
    p = served("--host", "0.0.0.0", "--max_model_len", 50000, "--max_num_seqs", 1)
    client = Running.__new__(Running)
    client.port = int(p.find(r"at http://0.0.0.0:(\d+)").group(1))
    assert p.find("WARNING: 0.0.0.0 can be reached from other machines, and there is no API key")
    stream = client.stream(COMPLETE, {"prompt": "x", "max_tokens": 49000, "ignore_eos": True})
    next(stream)
    p.process.send_signal(signal.SIGINT)
    p.find("SIGINT: new requests are refused")
    p.process.send_signal(signal.SIGINT)
    assert p.end() == 128 + signal.SIGINT and "ended; answers that were not finished: 1" in p.lines[-1]
    assert stream.rest()[-1]["error"]["code"] == "server_ends"


def test_what_keeps_the_program_from_starting(tmp_path, capsys):
    from pyflame.llm.serving import __main__ as command

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert command.main(["--model", str(tmp_path), "--port", str(taken.getsockname()[1])]) == 1
    assert "serve: the address cannot be used; got 127.0.0.1, port " in capsys.readouterr().err
    assert command.main(["--model", str(tmp_path), "--host", "no.such.host.invalid"]) == 1
    assert "serve: there is no such host; got 'no.such.host.invalid'" in capsys.readouterr().err
    assert command.main(["--model", str(tmp_path), "--api_key", ""]) == 1
    assert "serve: an API key is empty; got ''" in capsys.readouterr().err
    assert command.main(["--model", str(tmp_path), "--dtype", "int8"]) == 1
    assert "serve: there is no such dtype for weights; got 'int8'" in capsys.readouterr().err
    assert command.main(["--model", str(tmp_path), "--port", "0"]) == 1  # an empty folder
    assert "config.json" in capsys.readouterr().err
    folder = small.write_random_model(tmp_path / "m")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "m" / name).unlink()
    assert command.main(["--model", str(folder), "--port", "0"]) == 1
    assert "serve: the model's files have no tokenizer" in capsys.readouterr().err


def test_the_command_line(run, tmp_path):
    helped = run("serve", "--help").stdout
    assert all(f"--{name}" in helped for name in ("host", "port", "api_key,--api-key", "max_num_seqs,--max-num-seqs", "drain_seconds", "tensor_parallel_size,--tensor-parallel-size", "replicas"))
    for words, part in ((("serve",), "MODEL is required"), (("serve", "m", "--port", "70000"), "--port: Value 70000 not in range"), (("serve", "m", "--max-num-seqs", "0"), "--max_num_seqs: Value 0 not in range 1 to "),
                        (("serve", "m", "--replicas", "0"), "--replicas: Value 0 not in range 1 to "), (("serve", "m", "--dtype", "int8"), "--dtype"), (("serve", "m", "--kv-cache-dtype", "int4"), "--kv_cache_dtype: int4 not in {auto,"),
                        (("serve", "m", "--gpu-memory-utilization", "1.5"), "--gpu_memory_utilization: Value 1.5 not in range"),
                        (("serve", "m", "--enable_prefix_caching", "--no_enable_prefix_caching"), "excludes")):
        failed = run(*words, code=2)
        assert part.lower() in failed.stderr.lower(), failed.stderr
    # What was given reaches Python.
    failed = run("serve", tmp_path / "none.gguf", "--python", sys.executable, "--host", "no.such.host.invalid", "--api-key", "a", code=1)
    assert "serve: there is no such host; got 'no.such.host.invalid'" in failed.stderr
    for name in ("tensor_parallel_size", "replicas"):
        failed = run("serve", small.write_random_encoder(tmp_path / "encoder"), "--python", sys.executable, "--port", "0", f"--{name}", "2", code=1)
        assert f"serve: --{name} belongs to models that write texts; got 2 with one for embeddings" in failed.stderr
    failed = run("serve", tmp_path / "encoder", "--python", sys.executable, "--port", "0", "--kv-cache-dtype", "int8", code=1)
    assert "serve: --kv_cache_dtype belongs to models that write texts; got int8 with one for embeddings" in failed.stderr
    for words in (["--gpu-memory-utilization", "0.5"], ["--no-enable-prefix-caching"]):
        failed = run("serve", tmp_path / "encoder", "--python", sys.executable, "--port", "0", "--enable-prefix-caching" if len(words) > 1 else "--device=cpu", *words, code=1)
        assert f"serve: {words[0].replace('-', '_').replace('__', '--', 1)} belongs to models that write texts" in failed.stderr
    failed = run("serve", tmp_path / "none.gguf", "--python", sys.executable, "--port", "0", code=1)
    assert "none.gguf" in failed.stderr and "Traceback" not in failed.stderr


def test_packages_that_are_missing():
    from pyflame.llm._errors import needed

    with pytest.raises(ImportError, match=r"llm: the package no_such_package is not available; got .*; expected it for the server; hint: pip install regex jinja2 llguidance aiohttp prometheus-client"):
        needed("no_such_package", "the server", "serve")


def test_records_of_benchmarks_do_not_show_the_key(monkeypatch):
    from pyflame.benchmarking.environment import describe

    monkeypatch.setenv("PYFLAME_API_KEY", "secret")
    assert describe("cpu")["settings"]["PYFLAME_API_KEY"] == "(not shown)"


# HTTPS.


def test_tls(tmp_path):
    folder = small.write_random_model(tmp_path / "small")
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    if shutil.which("openssl") is None:
        pytest.skip("the program openssl is not installed")
    subprocess.run([str(w) for w in words], check=True, capture_output=True)
    program = Program("--model", folder, "--port", 0, "--ssl_certfile", certificate, "--ssl_keyfile", key)
    try:
        port = int(program.find(r" is at https://127\.0\.0\.1:(\d+)").group(1))
        context = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/health", context=context, timeout=60) as response:
            assert json.load(response) == {"status": "ok"}
        body = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
        with urllib.request.urlopen(urllib.request.Request(f"https://127.0.0.1:{port}/v1/completions", body, {"Content-Type": "application/json"}), context=context, timeout=60) as response:
            assert json.load(response)["object"] == "text_completion"
        long = json.dumps({"prompt": "ab" * 100_000}).encode()  # more than one read
        with urllib.request.urlopen(urllib.request.Request(f"https://127.0.0.1:{port}/tokenize", long, {"Content-Type": "application/json"}), context=context, timeout=60) as response:
            assert json.load(response)["count"] > 10_000
    finally:
        program.process.send_signal(signal.SIGTERM)
        program.end()


def test_wrong_options(tmp_path, capsys):
    from pyflame.llm.serving.__main__ import main

    (tmp_path / "no.pem").write_text("nothing", encoding="utf-8")
    for words, message in (
        (["--ssl_certfile", tmp_path / "no.pem"], "serve: the certificate cannot be used; got"),
        (["--ssl_keyfile", tmp_path / "no.pem"], "serve: the key has no certificate; got --ssl_keyfile alone; expected --ssl_certfile, too"),
        (["--lora_modules", "name"], "serve: an adapter has another form; got --lora_modules 'name'; expected NAME=FOLDER"),
        (["--speculative_config", "ngram"], "serve: --speculative_config is no JSON; got 'ngram'"),
        (["--pooler_config", "[]"], "serve: --pooler_config has another form; got '[]'; expected a JSON object"),
    ):
        assert main(["--model", "none", *map(str, words)]) == 1 and message in capsys.readouterr().err


@pytest.mark.parametrize("package", ["aiohttp", "prometheus_client"])
def test_a_package_that_is_missing_is_one_line(package):
    program = f"import runpy, sys; sys.modules[{package!r}] = None; sys.argv[1:] = ['--model', 'm', '--port', '0']; runpy.run_module('pyflame.llm.serving', run_name='__main__')"
    r = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert r.returncode == 1 and r.stderr.startswith(f"pyflame: llm: the package {package} is not available; got ") and len(r.stderr.splitlines()) == 1
    assert r.stderr.endswith("expected it for the server; hint: pip install regex jinja2 llguidance aiohttp prometheus-client\n")


def test_names_of_the_package():
    import pyflame.llm.serving as serving

    assert serving.Server.__module__ == serving.Limits.__module__ == "pyflame.llm.serving._server"
    with pytest.raises(AttributeError, match="module 'pyflame.llm.serving' has no attribute 'Sever'"):
        serving.Sever
