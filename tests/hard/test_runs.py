"""Training that is killed, meets a folder that cannot be written, or finds its folder in use: never a corrupt checkpoint, always a resume.
(A full disk and Ctrl-C: tests/python/test_cli.py.)"""
import json
import os
import pathlib
import random
import signal
import subprocess
import time

import pytest

import pyflame as pf

SOAK = int(os.environ.get("PYFLAME_SOAK", "0"))
OPTIONS = ["--n_layer", "2", "--n_head", "2", "--n_embd", "16", "--block_size", "8", "--batch_size", "4", "--eval_batches", "2", "--dropout", "0.1",
           "--eval_interval", "50", "--log_interval", "5", "--checkpoint_interval", "3"]
STEPS = 300


@pytest.fixture
def start(program, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line {i}: the quick brown fox\n" for i in range(100)), encoding="utf-8")

    def begin(out, *options, preload=None, **variables):
        """`preload`: a library that is loaded into the program first; `variables` are set in its environment."""
        if preload:
            variables["LD_PRELOAD"] = str(preload)
        command = [program, "train", "gpt", "--out", out, *(options or ["--data", text, *OPTIONS, "--steps", STEPS])]
        return subprocess.Popen([str(c) for c in command], env=dict(os.environ, **variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return begin


def finish(process, code=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, out + err
    return err


def metrics(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in ("tokens_per_s", "memory")} for line in lines]


@pytest.fixture(scope="module")
def kill_at(tmp_path_factory):
    """The library that kills a program at a chosen call (kill_at.c)."""
    library = tmp_path_factory.mktemp("kill_at") / "kill_at.so"
    source = pathlib.Path(__file__).parent / "kill_at.c"
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", str(source), "-o", str(library), "-ldl"], check=True)
    return library


def test_killed_before_chosen_writes(start, kill_at, tmp_path):
    """A run is killed before calls that change its files, resumed, and killed again. A checkpoint takes several such calls in a row, so
    consecutive numbers meet each of its stages."""
    whole, out, counted = tmp_path / "whole", tmp_path / "run", tmp_path / "counted"
    finish(start(whole, preload=kill_at, COUNT_TO=str(counted)))
    total = int(counted.read_text())
    assert total > 300, "the run changes its files less often than this test assumes"
    moments = [1, *range(total // 20, total // 20 + 9)]
    if SOAK:
        moments += random.Random(SOAK).sample(range(1, total // 20), min(6 * SOAK, total // 20 - 1))
    checkpoint = out / "checkpoint.safetensors"
    for moment in moments:
        process = start(out, *(["--resume"] if checkpoint.exists() else []), preload=kill_at, KILL_AT=str(moment))
        _, err = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, (moment, err)
        if checkpoint.exists():
            pf.io.load(checkpoint)  # whole, with a checksum of its own length
        elif out.exists():
            for file in out.iterdir():
                file.unlink()
    assert checkpoint.exists()
    finish(start(out, "--resume"))
    assert metrics(out) == metrics(whole)
    assert checkpoint.read_bytes()[8:] == (whole / "checkpoint.safetensors").read_bytes()[8:]
    assert not [f for f in out.iterdir() if ".tmp" in f.name], "what a killed process left was not cleared away"


def test_two_runs_in_one_folder(start, tmp_path):
    out = tmp_path / "run"
    first = start(out)
    while not (out / "checkpoint.safetensors").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGSTOP)  # so that it is not over before the others come
    try:
        for options in (["--resume"], ["--data", tmp_path / "text.txt", *OPTIONS, "--overwrite"]):
            err = finish(start(out, *options), code=1)
            assert f"another process trains in '{out}'" in err and "choose another --out" in err
    finally:
        os.kill(first.pid, signal.SIGCONT)
    finish(first)
    assert len(metrics(out)) >= STEPS
    finish(start(out, "--resume"))


def test_folders_that_cannot_be_written(start):
    for folder in ("/proc/pyflame-run", "/dev/null/run"):
        err = finish(start(pathlib.Path(folder)), code=1)
        assert err.startswith("pyflame: train gpt: ") and folder in err and err.count("\n") == 1


def test_a_folder_that_became_unwritable(start, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may write to every folder")
    out = tmp_path / "run"
    finish(start(out))
    before = (out / "checkpoint.safetensors").read_bytes()
    out.chmod(0o500)
    try:
        err = finish(start(out, "--resume", "--steps", STEPS + 10), code=1)
        assert "checkpoint" in err or "metrics" in err
        assert (out / "checkpoint.safetensors").read_bytes() == before
    finally:
        out.chmod(0o700)
