"""The `pyflame` program as a user runs it: tiny runs, resuming, Ctrl-C, generation, and its messages about wrong input."""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ["--n_layer", "2", "--n_head", "2", "--n_embd", "16", "--block_size", "8", "--batch_size", "4", "--eval_batches", "2"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("".join(f"line {i}: the quick brown fox\n" for i in range(100)), encoding="utf-8")
    return path


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def one_line(stderr):
    assert stderr.startswith("pyflame: ") and stderr.count("\n") == 1, stderr
    return stderr


def test_info(run):
    j = json.loads(run("info", "--json").stdout)
    assert re.fullmatch(r"\d+\.\d+\.\d+", j["version"])
    assert [d["name"] for d in j["devices"]] == ["cpu", "rocm", "cuda"]
    assert j["devices"][0]["available"] and j["devices"][0]["total_memory"] > 0
    for d in j["devices"][1:]:
        assert d["available"] or d["reason"]
    assert set(j["libraries"]) == {"oneDNN", "OpenBLAS", "Highway", "fmt"}
    assert j["threads"] >= 1 and j["cache_dir"]
    assert j["version"] in run("info").stdout
    assert j["version"] in run("--version").stdout


def test_the_interpreter(run):
    """--python names it, otherwise PYFLAME_PYTHON does."""
    def message(*words, **variables):
        return one_line(run("chat", "model", *words, code=None, env={**os.environ, **variables}).stderr)

    text = "chat: Python cannot be started; got /no/{}: No such file or directory; hint: name it with --python"
    assert text.format("python") in message(PYFLAME_PYTHON="/no/python")
    assert text.format("other") in message("--python", "/no/other", PYFLAME_PYTHON="/no/python")


def test_help_names_every_option(run):
    out = run("train", "gpt", "--help").stdout
    for name in ("data out steps batch_size n_layer n_head n_embd block_size dropout lr seed gradient_accumulation_steps "
                 "checkpoint_interval eval_interval tokenizer resume overwrite smoke distributed use_mixed_precision num_workers pin_memory resume_from_checkpoint").split():
        assert "--" + name in out, name
    out = run("generate", "--help").stdout
    for name in "checkpoint prompt max_tokens temperature top_k top_p seed".split():
        assert "--" + name in out, name


@pytest.mark.parametrize(
    "args, word",
    [
        (["nonsense"], "nonsense"),
        (["train"], "subcommand"),
        (["train", "gpt"], "--out"),
        (["train", "gpt", "--out", "x", "--stepz", "3"], "--stepz"),
        (["train", "gpt", "--out", "x", "--steps", "many"], "many"),
        (["train", "gpt", "--out", "x", "--steps"], "--steps"),
        (["train", "gpt", "--out", "x", "--tokenizer", "words"], "words"),
        (["generate"], "--checkpoint"),
        (["generate", "--checkpoint", "x", "--top_k", "1.5"], "1.5"),
    ],
)
def test_wrong_command_lines(run, args, word):
    assert word in one_line(run(*args, code=2).stderr)


@pytest.mark.parametrize(
    "args, word",
    [
        (["--steps", "0"], "steps must be positive; got 0"),
        (["--batch_size", "-1"], "batch_size must be positive; got -1"),
        (["--n_head", "3"], "n_head must divide n_embd"),
        (["--dropout", "1"], "dropout is out of range; got 1"),
        (["--lr", "nan"], "lr must be a positive number"),
        (["--lr", "0"], "lr must be a positive number; got 0"),
        (["--eval_interval", "0"], "intervals"),
        (["--block_size", "100000"], "too short"),
    ],
)
def test_wrong_values(run, text, tmp_path, args, word):
    out = tmp_path / "run"
    assert word in one_line(run("train", "gpt", "--data", text, "--out", out, *TINY, *args, code=1).stderr)  # of two values the last counts
    assert not out.exists(), "a folder was made for a run that never began"


def test_wrong_data(run, tmp_path):
    out = tmp_path / "run"
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 " * 100)
    (tmp_path / "empty.txt").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    for name, word in [("missing.txt", "does not exist"), ("latin.txt", "bytes tokenizer"), ("empty.txt", "is empty"), ("folder", "no text found")]:
        assert word in one_line(run("train", "gpt", "--data", tmp_path / name, "--out", out, code=1).stderr)
    assert "--data is missing" in run("train", "gpt", "--out", out, code=1).stderr
    assert "is a file" in run("train", "gpt", "--data", tmp_path / "latin.txt", "--out", tmp_path / "latin.txt", code=1).stderr
    assert not out.exists()


def test_train_and_generate(run, text, tmp_path):
    out = tmp_path / "run"
    r = run("train", "gpt", "--data", text, "--out", out, *TINY, "--steps", 30, "--eval-interval", 10, "--seed", 5)
    assert "\r" not in r.stdout and "\x1b" not in r.stdout, "a pipe gets plain lines"
    assert "step 30/30 (100 %)" in r.stdout and "validation loss" in r.stdout
    lines = metrics(out)
    assert [m["step"] for m in lines] == list(range(1, 31))
    assert [m["step"] for m in lines if "val_loss" in m] == [10, 20, 30]
    assert lines[-1]["loss"] < lines[0]["loss"]
    assert all(m["lr"] > 0 and m["tokens_per_s"] > 0 for m in lines)
    assert ElementTree.parse(out / "loss.svg").getroot().tag.endswith("svg")
    assert sorted(p.name for p in out.iterdir()) == ["checkpoint.safetensors", "loss.svg", "metrics.jsonl", "report.html", "trace.json"]
    page = (out / "report.html").read_text()
    assert f"Validation loss {lines[-1]['val_loss']:.4f} after 30 steps" in page and page.count('<svg class="chart') == 5
    assert not re.search(r'(?:src|href)="(?!#)|url\(|https?://', page.replace('xmlns="http://www.w3.org/2000/svg"', "")), "it loads nothing"
    # Where the time went: the shares of the recorded steps are all of it.
    profiled = page[page.index('id="time"') : page.index('id="memory"')]
    assert "Of 5 training steps that were recorded" in profiled and "GEMM" in profiled and "adam_step" in profiled and "between steps" in profiled
    kinds = [float(x) for x in re.findall(r"<b>(\d+\.\d) %</b>", profiled)]
    assert len(kinds) >= 4 and abs(sum(kinds) - 100) < 0.5
    report = json.loads(run("report", out / "trace.json", "--json").stdout)
    assert report["format"] == "PyFlame trace" and report["time"]["steps"]["count"] == 5

    g = run("generate", "--checkpoint", out, "--prompt", "line", "--max-tokens", 40)
    assert g.stdout.startswith("line") and len(g.stdout) == 4 + 40 + 1
    assert re.search(r"40 tokens, \d+ tokens/s", g.stderr)
    again = run("generate", "--checkpoint", out / "checkpoint.safetensors", "--prompt", "line", "--max_tokens", 40)
    assert again.stdout == g.stdout, "the same seed writes the same text"
    assert run("generate", "--checkpoint", out, "--prompt", "line", "--max_tokens", 40, "--seed", 2).stdout != g.stdout
    greedy = [run("generate", "--checkpoint", out, "--prompt", "line", "--max_tokens", 9, "--seed", s, *o).stdout
              for s in (1, 2) for o in (["--temperature", 0], ["--top_k", 1])]
    assert len(set(greedy)) == 1

    for limit in (1, 3):
        limited = run("generate", "--checkpoint", out, "--prompt", "line", "--max_tokens", 60, "--temperature", 0, "--max_repeat", limit).stdout
        assert not re.search(r"(.)\1{%d}" % limit, limited[3:-1], re.DOTALL)

    missing = one_line(run("generate", "--checkpoint", out, "--prompt", "Ünicode€", code=1).stderr)
    assert "'Ü' (U+00DC)" in missing and "'€' (U+20AC)" in missing and "'n'" not in missing
    for args, word in [(["--prompt", ""], "prompt is empty"), (["--temperature", -1], "temperature"), (["--top_p", 0], "top_p"),
                       (["--top_k", -3], "top_k"), (["--max_tokens", -1], "max_tokens"), (["--max_repeat", -1], "max_repeat")]:
        assert word in one_line(run("generate", "--checkpoint", out, *args, code=1).stderr)


def test_wrong_checkpoints(run, tmp_path):
    (tmp_path / "junk").write_bytes(b"\xff" * 100)
    (tmp_path / "folder").mkdir()
    for name, word in [("missing", "does not exist"), ("junk", "not a safetensors file"), ("folder", "has no checkpoint.safetensors")]:
        assert word in one_line(run("generate", "--checkpoint", tmp_path / name, code=1).stderr)


def test_bytes_and_utf8(run, tmp_path):
    data = tmp_path / "text.txt"
    data.write_text("äöü €uro 日本語 " * 60, encoding="utf-8")
    out = tmp_path / "run"
    run("train", "gpt", "--data", data, "--out", out, *TINY, "--steps", 10, "--tokenizer", "bytes")
    # An untrained model of bytes writes anything; the stream is valid UTF-8 all the same (the fixture decodes strictly).
    g = run("generate", "--checkpoint", out, "--prompt", "日", "--max_tokens", 200, "--temperature", 2)
    assert g.stdout.startswith("日") and "\ufffd" in g.stdout


def test_resume_is_identical_and_guarded(run, text, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    options = [*TINY, "--dropout", "0.1", "--steps", 12, "--eval_interval", 6, "--checkpoint_interval", 5, "--gradient_accumulation_steps", 2]
    run("train", "gpt", "--data", text, "--out", whole, *options)
    run("train", "gpt", "--data", text, "--out", parts, *options)
    run("train", "gpt", "--data", text, "--out", tmp_path / "five", *[o if o != 12 else 5 for o in options])
    assert "already holds a run" in one_line(run("train", "gpt", "--data", text, "--out", parts, *options, code=1).stderr)
    stopped = tmp_path / "stopped"
    stopped.mkdir()
    # As if the run had been killed in its seventh step: the metrics have lines that the checkpoint lacks, the last of them torn.
    shutil.copy(tmp_path / "five" / "checkpoint.safetensors", stopped)
    (stopped / "metrics.jsonl").write_text((tmp_path / "five" / "metrics.jsonl").read_text() + '{"step": 6, "loss": 9, "lr": 1, "tokens_per_s": 1}\n{"step": 7, "lo')
    r = run("train", "gpt", "--out", stopped, "--resume", "--steps", 12)
    assert "steps 12 instead of 5" in r.stdout and "resumed     at step 5 of 12" in r.stdout
    assert [m["step"] for m in metrics(stopped)] == list(range(1, 13))
    assert metrics(stopped)[5]["loss"] != 9
    strip = lambda lines: [{k: v for k, v in m.items() if k not in ("tokens_per_s", "memory")} for m in lines]
    assert strip(metrics(whole)) == strip(metrics(parts)), "two runs with the same seed are the same"
    assert (whole / "checkpoint.safetensors").read_bytes()[8:] == (parts / "checkpoint.safetensors").read_bytes()[8:]

    assert "cannot change when a run is resumed" in one_line(run("train", "gpt", "--out", whole, "--resume", "--n_embd", 32, code=1).stderr)
    assert "no checkpoint to resume" in one_line(run("train", "gpt", "--out", tmp_path / "none", "--resume", code=1).stderr)
    text.write_text(text.read_text() + "more\n")
    assert "not the data of the checkpoint" in one_line(run("train", "gpt", "--out", whole, "--resume", "--steps", 20, code=1).stderr)
    run("train", "gpt", "--data", text, "--out", whole, "--overwrite", *TINY, "--steps", 2)
    assert len(metrics(whole)) == 2


@pytest.mark.parametrize("sig", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_saves_and_resume_is_bit_identical(program, run, text, tmp_path, sig):
    out, whole = tmp_path / "run", tmp_path / "whole"
    options = [*TINY, "--dropout", "0.1", "--log_interval", "1", "--eval_interval", "500", "--checkpoint_interval", "100000", "--steps"]
    process = subprocess.Popen([program, "train", "gpt", "--data", text, "--out", out, *options, "2000"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (out / "metrics.jsonl").exists() or (out / "metrics.jsonl").stat().st_size == 0:
        assert process.poll() is None and time.monotonic() < deadline, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(sig)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    done = len(metrics(out))
    assert 1 <= done < 2000, "the run was over before the signal; it has to be longer"
    assert f"interrupted at step {done}" in err and "--resume" in err
    page = (out / "report.html").read_text()
    assert f"Interrupted at step {done} of 2000" in page and f"pyflame train gpt --out {out} --resume" in page
    run("train", "gpt", "--out", out, "--resume")
    run("train", "gpt", "--data", text, "--out", whole, *options, 2000)
    page = (out / "report.html").read_text()
    assert "after 2000 steps" in page and "since it was resumed" in page and "--resume" not in page
    strip = lambda lines: [{k: v for k, v in m.items() if k not in ("tokens_per_s", "memory")} for m in lines]
    assert strip(metrics(out)) == strip(metrics(whole))
    assert (out / "checkpoint.safetensors").read_bytes()[8:] == (whole / "checkpoint.safetensors").read_bytes()[8:]


def test_report_of_short_runs_and_strange_names(run, tmp_path):
    data = tmp_path / "<b>&.txt"
    data.write_text("".join(f"line {i}\n" for i in range(100)))
    for steps in (1, 3, 12):
        out = tmp_path / f"run{steps}"
        run("train", "gpt", "--data", data, "--out", out, *TINY, "--steps", steps, "--eval_interval", 2)
        page = (out / "report.html").read_text()
        assert f"after {steps} steps" in page and "&lt;b&gt;&amp;.txt" in page and "<b>&" not in page
        recorded = int(re.search(r"Of (\d+) training step", page)[1])
        assert 1 <= recorded <= min(steps, 5)


def test_full_disk_keeps_the_checkpoint(program, run, text, tmp_path):
    out = tmp_path / "run"
    run("train", "gpt", "--data", text, "--out", out, *TINY, "--steps", 5)
    before = (out / "checkpoint.safetensors").read_bytes()
    limit = len(before) // 2

    def small_disk():  # a limit on the size of files stands for a full disk
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    r = run("train", "gpt", "--out", out, "--resume", "--steps", 8, code=1, preexec_fn=small_disk)
    assert re.search(r"wrote \d+ of \d+ bytes", one_line(r.stderr))
    assert (out / "checkpoint.safetensors").read_bytes() == before
    assert not [p for p in out.iterdir() if ".tmp" in p.name]


def test_diverging_run_says_so(run, text, tmp_path):
    r = run("train", "gpt", "--data", text, "--out", tmp_path / "run", *TINY, "--steps", 400, "--lr", "1e30", "--warmup_steps", 0, code=1)
    assert "no longer a number" in one_line(r.stderr) and "--lr" in r.stderr


def test_terminal_gets_a_bar_and_no_color_is_obeyed(program, text, tmp_path):
    import pty

    for no_color in (False, True):
        env = {**os.environ, "TERM": "xterm", **({"NO_COLOR": "1"} if no_color else {})}
        if not no_color:
            env.pop("NO_COLOR", None)
        try:
            main_end, program_end = pty.openpty()
        except OSError as e:
            pytest.skip(f"no pseudo-terminal here: {e}")
        process = subprocess.Popen([program, "train", "gpt", "--data", text, "--out", tmp_path / f"run{no_color}", *TINY, "--steps", "20"],
                                   stdout=program_end, stderr=subprocess.PIPE, env=env)
        os.close(program_end)
        seen = b""
        while True:
            try:
                chunk = os.read(main_end, 4096)
            except OSError:
                break
            if not chunk:
                break
            seen += chunk
        os.close(main_end)
        assert process.wait(timeout=60) == 0, process.stderr.read()
        assert b"\r\x1b[K" in seen and "20/20".encode() in seen
        assert (b"\x1b[32m" in seen) != no_color


def test_the_example_in_python_gives_the_same_losses(run, text, tmp_path, capsys):
    spec = importlib.util.spec_from_file_location("train_gpt", ROOT / "examples" / "train_gpt.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    options = [*TINY, "--steps", "12", "--dropout", "0.1", "--gradient_accumulation_steps", "2", "--eval_interval", "6", "--seed", "3"]
    example.main(["--data", str(text), *options])
    python = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    run("train", "gpt", "--data", text, "--out", tmp_path / "run", *options)
    program = metrics(tmp_path / "run")
    assert [m["step"] for m in python] == [m["step"] for m in program]
    for a, b in zip(python, program):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-5) and a["lr"] == pytest.approx(b["lr"], rel=1e-12)
        assert ("val_loss" in a) == ("val_loss" in b)
        if "val_loss" in a:
            assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-5)
