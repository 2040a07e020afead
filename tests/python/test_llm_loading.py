"""The line of progress while a model is loaded."""
import contextlib
import os
import pty
import re
import sys
import tempfile
import threading

import pytest

import pyflame as pf

pytest.importorskip("regex", reason="the package regex is not installed")
from pyflame.llm import LLM, _loading  # noqa: E402
from pyflame.llm.__main__ import main  # noqa: E402
from pyflame.llm.serving.__main__ import _progress  # noqa: E402
from pyflame.llm.serving._log import Log  # noqa: E402
from pyflame.testing import language_models as small  # noqa: E402


@contextlib.contextmanager
def terminal(monkeypatch):
    """stderr is a terminal within it. Yields a function that returns what was written there."""
    own, end = pty.openpty()
    parts = []

    def read():
        with contextlib.suppress(OSError):  # the other end is closed
            while part := os.read(own, 4096):
                parts.append(part)

    thread = threading.Thread(target=read)
    thread.start()
    stream = os.fdopen(end, "w", encoding="utf-8")
    with monkeypatch.context() as m:
        m.setattr(sys, "stderr", stream)
        m.setenv("COLUMNS", "120")

        def text():
            if not stream.closed:
                stream.close()
                thread.join()
            return b"".join(parts).decode()

        try:
            yield text
        finally:
            text()
            os.close(own)


@pytest.fixture(scope="module")
def folder():
    """Its path has the same length in each run: lines are cut at the terminal's width."""
    with tempfile.TemporaryDirectory(prefix="m-") as path:
        yield str(small.write_random_model(path, "llama", seed=3))


@pytest.fixture(scope="module")
def gguf(folder, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("g") / "m.gguf")
    pf.llm.convert(folder, path, "Q8_0")
    return path


def weights(path):
    return os.path.getsize(os.path.join(path, "model.safetensors") if os.path.isdir(path) else path)


LINE = r"\[(#*)(\.*)\] [^\r]*m\S* … %s (.*?) of (.*?) \((\d+)%%\), \d+ s"


def states(text, phase="reads"):
    """What the lines say. Their bars are as long as their numbers say."""
    found = re.findall(LINE % phase, text)
    for done, left, *_, percent in found:
        assert len(done + left) == 24 and abs(len(done) - 24 * int(percent) / 100) <= 1
    return [state for _, _, *state in found]


def check(text, path):
    """It begins with nothing, reads all bytes, then packs all layers, and leaves an empty line."""
    found, layers, size = states(text), states(text, "packs"), _loading.size_text(weights(path))
    assert found[0] == ["0 bytes", size, "0"] and found[-1] == [size, size, "100"], text
    assert [s for i, s in enumerate(layers) if s not in layers[:i]] == [[str(i), "4 layers", str(25 * i)] for i in (1, 2, 3, 4)], text
    assert text.rindex("reads") < text.index("packs")
    assert text.endswith("\r\033[K") and "\n" not in text


def test_offline(monkeypatch, folder, gguf):
    for path in (folder, gguf):
        with terminal(monkeypatch) as written:
            LLM(path).close()
            check(written(), path)
        with terminal(monkeypatch) as written:
            LLM(path, use_tqdm_on_load=False).close()
            assert written() == ""


@pytest.mark.parametrize("words", [[], ["--kv_cache_dtype", "int8"]], ids=["alone", "engine"])
def test_generate(monkeypatch, capsys, folder, words):
    with terminal(monkeypatch) as written:
        assert main(["generate", "--model", folder, "--prompt", "a", "--max_tokens", "2", *words]) == 0
        text = written()
    check(text[: text.rindex("\033[K") + 3], folder)
    assert "tokens in" in text


def test_serve(monkeypatch, folder):
    with terminal(monkeypatch) as written:
        with _progress(Log(), f"loading {folder}"):
            pf.llm.load(folder)
        text = written()
    assert states(text)[-1][2] == "100"
    assert re.search(rf"pyflame serve: loading {re.escape(folder)}: done in \d+\.\d s, {_loading.size_text(weights(folder))}\s*$", text)


def test_without_a_terminal(capfd, folder):
    assert main(["generate", "--model", folder, "--prompt", "a", "--max_tokens", "2"]) == 0
    assert capfd.readouterr().err.count("\n") == 1  # how fast the text was written
    with _progress(Log(), f"loading {folder}"):
        pf.llm.load(folder)
    assert capfd.readouterr().err.count("\n") == 2


def test_bytes_of_a_file_that_is_being_read(tmp_path):
    """What the system counts for this thread is what the line says before the file's end. What other threads read does not count."""
    path = tmp_path / "m.gguf"
    path.write_bytes(bytes(300_000))
    if _loading._bytes_read(threading.get_native_id()) is None:
        pytest.skip("the system does not count the bytes that a thread reads")
    with _loading.shown("loading") as loading:
        _loading.expect(path)
        with _loading.file(path), open(path, "rb") as f:
            f.read(100_000)
            other = threading.Thread(target=path.read_bytes)
            other.start(), other.join()
            assert 100_000 <= loading.bytes() < 250_000
        assert loading.bytes() == loading.total == 300_000


def test_an_error_leaves_an_empty_line(monkeypatch, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 64)
    with terminal(monkeypatch) as written:
        with pytest.raises(ValueError):
            LLM(str(path))
        assert written().endswith("\r\033[K")


def test_a_long_name_fits_into_the_line(monkeypatch):
    with terminal(monkeypatch) as written:
        with _loading.shown("loading /" + "x" * 300) as loading:
            loading.changed()
        assert all(len(line.split("\033[K")[-1]) < 120 for line in written().split("\r"))
