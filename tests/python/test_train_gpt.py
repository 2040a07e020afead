"""What `pyflame train gpt` shares with the other models of `pyflame train`: short runs, batches ahead, mixed precision, memory, several processes."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

TINY = ["--n_layer", 1, "--n_head", 2, "--n_embd", 16, "--block_size", 16, "--batch_size", 4, "--eval_batches", 3, "--warmup_steps", 0, "--min_lr_ratio", 1]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {i} of a text\n" for i in range(400)))
    return ["--data", path, *TINY]


def records(folder):
    return [json.loads(line) for line in open(folder / "metrics.jsonl")]


def numbers(folder):
    return [(r["step"], r["loss"], r["lr"], r.get("val_loss")) for r in records(folder)]


def weights(folder):
    return (folder / "checkpoint.safetensors").read_bytes()[8:]


def test_a_short_run_tests_the_long_one_and_writes_nothing(run, data, tmp_path):
    before = set(tmp_path.iterdir())
    out = run("train", "gpt", *data, "--smoke", "--steps", 300, "--out", tmp_path / "run").stdout
    assert "smoke       passed; 3 steps, finite losses" in out and "a checkpoint that gives back the same state, and the same next" in out
    assert "300 steps take about" in out and "memory: tensors " in out and set(tmp_path.iterdir()) == before
    result = json.loads(run("train", "gpt", *data, "--smoke", "--steps", 5, "--dropout", "0.2", "--json").stdout.splitlines()[-1])
    assert result["smoke"] is True and result["step"] == 2 and result["out"] is None
    assert "--out is required" in run("train", "gpt", *data, code=2).stderr
    run("train", "gpt", *data, "--steps", 2, "--out", tmp_path / "run")
    assert "--smoke and --resume exclude each other" in run("train", "gpt", "--smoke", "--resume", "--out", tmp_path / "run", code=1).stderr


def test_a_short_run_finds_losses_that_are_not_finite(run, data):
    assert "the loss is no longer a number at step" in run("train", "gpt", *data, "--smoke", "--steps", 2000, "--lr", "1e30", code=1).stderr


def test_batches_that_are_prepared_ahead_are_the_same(run, data, tmp_path):
    run("train", "gpt", *data, "--steps", 6, "--gradient_accumulation_steps", 2, "--out", tmp_path / "a")
    run("train", "gpt", *data, "--steps", 3, "--gradient_accumulation_steps", 2, "--out", tmp_path / "b", "--num_workers", 3, "--pin_memory")
    whole = numbers(tmp_path / "a")
    run("train", "gpt", *data, "--steps", 6, "--gradient_accumulation_steps", 2, "--out", tmp_path / "c", "--num_workers", 3, "--pin_memory", "--resume_from_checkpoint")  # there is none: it begins
    assert numbers(tmp_path / "c") == whole and weights(tmp_path / "a") == weights(tmp_path / "c")
    for n in (-1, 65):
        assert f"num_workers is out of range; got {n}; expected 0 to 64" in run("train", "gpt", *data, "--num_workers", n, "--out", tmp_path / "d", code=1).stderr


def test_mixed_precision(run, data, tmp_path):
    run("train", "gpt", *data, "--steps", 4, "--out", tmp_path / "full")
    run("train", "gpt", *data, "--steps", 4, "--out", tmp_path / "mixed", "--use_mixed_precision")
    for (_, full, *_), (_, mixed, *_) in zip(numbers(tmp_path / "full"), numbers(tmp_path / "mixed")):
        assert full != mixed and abs(full - mixed) < 0.02
    assert "Mixed precision" in (tmp_path / "mixed" / "report.html").read_text()
    run("train", "gpt", *data, "--steps", 2, "--out", tmp_path / "named", "--use_mixed_precision", "bfloat16")
    run("train", "gpt", "--steps", 5, "--out", tmp_path / "mixed", "--resume")
    assert "--use_mixed_precision cannot change" in run("train", "gpt", "--steps", 6, "--out", tmp_path / "full", "--resume", "--use_mixed_precision", code=1).stderr
    assert "float16 not in {bfloat16}" in run("train", "gpt", *data, "--use_mixed_precision", "float16", "--out", tmp_path / "x", code=2).stderr


def test_memory_is_in_the_lines_the_records_and_the_report(run, data, tmp_path):
    out = run("train", "gpt", *data, "--steps", 4, "--log_interval", 2, "--out", tmp_path / "run").stdout
    assert all("  memory " in line for line in out.splitlines() if "tokens/s" in line)
    known = [r["memory"] for r in records(tmp_path / "run") if "memory" in r]
    assert len(known) == 2 and all(0 < m["allocated"] <= m["peak"] and 0 < m["host"] <= m["host_peak"] < m["host_total"] for m in known)
    assert "Memory of the process on the host" in (tmp_path / "run" / "report.html").read_text()
    run("train", "gpt", "--steps", 6, "--log_interval", 2, "--out", tmp_path / "run", "--resume")
    assert [r["memory"] for r in records(tmp_path / "run") if "memory" in r][:2] == known, "a resumed run keeps them"


def several(program, n, *words):
    return [program, "run", "--python", sys.executable, "--nproc", str(n), "-m", "pyflame.train", "gpt", "--program", program, *map(str, words), "--distributed"]


def train(program, n, *words, code=0):
    done = subprocess.run(several(program, n, *words), capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done


def test_two_processes_make_the_updates_of_one(program, run, data, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    run("train", "gpt", *data, "--steps", 6, "--gradient_accumulation_steps", 2, "--out", one)
    out = train(program, 2, *data, "--steps", 2, "--out", two).stdout
    assert "128 tokens a step" in out and "[1]" not in out, "rank 0 speaks"
    run("train", "gpt", "--steps", 4, "--out", two, "--resume")  # one process goes on, and two again
    train(program, 2, "--steps", 6, "--out", two, "--resume", "--num_workers", 1)
    assert [r["step"] for r in records(two)] == [1, 2, 3, 4, 5, 6]
    for a, b in zip(numbers(one)[4:], numbers(two)[4:]):
        assert a[1] == pytest.approx(b[1], abs=1e-4)
    assert "2 processes" in (two / "report.html").read_text()
    failed = train(program, 3, "--steps", 8, "--out", two, "--resume", code=1)
    assert "the processes cannot divide the batches of an update; got 3 processes for 2 batches" in failed.stderr


def test_a_run_of_two_processes_is_resumed_bit_by_bit(program, data, tmp_path):
    train(program, 2, *data, "--dropout", "0.2", "--steps", 4, "--checkpoint_interval", 2, "--out", tmp_path / "whole")
    train(program, 2, *data, "--dropout", "0.2", "--steps", 4, "--checkpoint_interval", 2, "--out", tmp_path / "again")
    assert weights(tmp_path / "whole") == weights(tmp_path / "again")
    train(program, 2, "--steps", 6, "--out", tmp_path / "whole", "--resume")
    train(program, 2, "--steps", 6, "--out", tmp_path / "again", "--resume")
    assert numbers(tmp_path / "whole") == numbers(tmp_path / "again") and weights(tmp_path / "whole") == weights(tmp_path / "again")


def test_a_short_run_of_two_processes(program, run, data):
    assert "smoke       passed; 3 steps" in train(program, 2, *data, "--smoke", "--steps", 300).stdout
    assert "smoke       passed; 3 steps" in run("train", "--python", sys.executable, "gpt", *data, "--smoke", "--steps", 300, "--distributed").stdout, "a process alone"


def test_an_interrupt_ends_all_processes_after_the_same_step(program, data, tmp_path):
    out = tmp_path / "run"
    process = subprocess.Popen(several(program, 2, *data, "--steps", 10**6, "--log_interval", 1, "--checkpoint_interval", 10**6, "--eval_interval", 10**6, "--out", out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() or not (out / "metrics.jsonl").stat().st_size:
        assert process.poll() is None and time.monotonic() < until, process.stderr.read()
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert f"interrupted at step {len(records(out))}; the checkpoint is saved" in err
