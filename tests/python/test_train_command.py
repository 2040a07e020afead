"""`pyflame train mlp|cnn|resnet|SCRIPT`: python -m pyflame.train, and the program that starts it."""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf
from pyflame.train import _command


def call(capsys, *words):
    """(exit code, output, errors)"""
    try:
        code = _command.main([str(w) for w in words])
    except SystemExit as end:
        code = end.code
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((200, 3)) * [1, 100, 0] + [0, 500, 7]
    y = x[:, 0] + x[:, 1] / 100
    np.savetxt(tmp_path / "t.csv", np.column_stack([x[:, 0], y, x[:, 1:]]), delimiter=",", header="a,goal,b,c", comments="")
    return tmp_path / "t.csv"


def records(folder):
    return [json.loads(line) for line in open(folder / "metrics.jsonl")]


def test_mlp_learns_a_table_and_resumes(table, tmp_path, capsys):
    words = ["mlp", "--data", table, "--target", "goal", "--hidden_sizes", "16,8", "--batch-size", 16, "--lr", 0.01, "--validation_share", 0.2]
    assert call(capsys, *words, "--epochs", 8, "--out", tmp_path / "whole")[0] == 0
    ends = [r for r in records(tmp_path / "whole") if "end_of_epoch" in r]
    assert len(ends) == 8 and ends[-1]["step"] == 80 and ends[-1]["val_loss"] < 0.2 * ends[0]["val_loss"]
    assert set(pf.load(tmp_path / "whole" / "best.safetensors")) >= {"1.mean", "1.deviation", "2.layers.0.weight"}
    assert call(capsys, *words, "--epochs", 3, "--out", tmp_path / "parts", "--resume_from_checkpoint")[0] == 0
    code, out, _ = call(capsys, *words, "--epochs", 8, "--out", tmp_path / "parts", "--resume_from_checkpoint", "--checkpoint_interval", 7)
    assert code == 0 and out.startswith("epoch 4/8")
    assert [r["loss"] for r in records(tmp_path / "parts") if "end_of_epoch" in r] == [r["loss"] for r in ends]


def test_mlp_learns_targets_of_any_size(tmp_path, capsys):
    """Prices: the loss is relative to their variance, the predictions are prices."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 2))
    price = 4e5 + 1e5 * x[:, 0] - 5e4 * x[:, 1]
    np.savetxt(tmp_path / "p.csv", np.column_stack([x, price]), delimiter=",", header="a,b,price", comments="")
    assert call(capsys, "mlp", "--data", tmp_path / "p.csv", "--hidden_sizes", "16", "--batch-size", 16, "--lr", 0.01, "--epochs", 8, "--out", tmp_path / "run")[0] == 0
    ends = [r for r in records(tmp_path / "run") if "end_of_epoch" in r]
    assert ends[0]["loss"] < 2 and ends[-1]["val_loss"] < 0.1
    assert abs(ends[-1]["val_mse"] / ends[-1]["val_loss"] / price.var() - 1) < 0.2
    kept = pf.load(tmp_path / "run" / "best.safetensors")
    assert 3e5 < kept["3.mean"].item() < 5e5 and 5e4 < kept["3.deviation"].item() < 2e5


def test_a_finished_run_is_replaced_on_request_only(table, tmp_path, capsys):
    words = ["mlp", "--data", table, "--hidden_sizes", "4", "--epochs", 1, "--out", tmp_path / "run"]
    assert call(capsys, *words)[0] == 0
    kept = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    code, _, err = call(capsys, *words, "--seed", 1)
    assert code == 1 and "already holds a run; expected a folder without one" in err and "--resume_from_checkpoint" in err and "--overwrite" in err
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == kept
    assert call(capsys, *words, "--seed", 1, "--overwrite")[0] == 0
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() != kept


def images(path, classes=3):
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, 60)
    x = rng.integers(0, 50, (60, 8, 8), dtype=np.uint8)
    x[np.arange(60), y * 2, :] = 250  # the bright row says which class it is
    np.savez(path, x=x, y=y)
    return path


def test_cnn_and_resnet(tmp_path, capsys):
    data = images(tmp_path / "i.npz")
    code, out, _ = call(capsys, "cnn", "--data", data, "--epochs", 8, "--batch_size", 10, "--lr", 0.01, "--use_mixed_precision", "--gradient_accumulation_steps", 2, "--pin_memory")
    assert code == 0 and float(re.search(r"val_accuracy ([.\d]+)", out.splitlines()[-1])[1]) > 0.8
    code, out, _ = call(capsys, "resnet", "--data", data, "--data_fraction", 0.2, "--batch_size", 5, "--epochs", 3, "--smoke", "--out", tmp_path / "run")
    assert code == 0 and "smoke: passed" in out and not (tmp_path / "run").exists()
    assert out.count(" samples/s, memory ") == 2 and max(map(len, out.splitlines())) <= 80
    assert call(capsys, "mlp", "--data", data, "--task", "classification", "--epochs", 1)[0] == 0


SCRIPT = """
import pyflame as pf

def trainer(**settings):
    x = pf.randn(32, 4)
    model = pf.nn.Sequential(pf.nn.Linear(4, 1), pf.nn.Flatten(0))
    return pf.train.Trainer(model, pf.data.TensorDataset(x, x.sum(1)), loss=pf.nn.functional.mse_loss, **settings)
"""


def test_a_script(tmp_path, capsys):
    (tmp_path / "s.py").write_text(SCRIPT)
    code, out, _ = call(capsys, tmp_path / "s.py", "--epochs", 2, "--batch_size", 16, "--seed", 4)
    assert code == 0 and out.splitlines()[-1].startswith("epoch 2/2 done: loss ")
    assert call(capsys, tmp_path / "s.py", "--epochs", 2, "--batch_size", 16, "--seed", 4)[1].split(" s,")[0].split(", ")[0] == out.split(" s,")[0].split(", ")[0]
    for text, message in (("x = 1", "has no function trainer; expected `def trainer"), ("def trainer(**s): return 3", "returned no Trainer; got int")):
        (tmp_path / "bad.py").write_text(text)
        code, _, err = call(capsys, tmp_path / "bad.py")
        assert code == 1 and message in err
    (tmp_path / "raises.py").write_text("def trainer(**s): raise KeyError('mine')")
    with pytest.raises(KeyError, match="mine"):
        call(capsys, tmp_path / "raises.py")


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def test_json_has_the_records_of_the_file_and_the_result(table, tmp_path, capsys):
    code, out, err = call(capsys, "mlp", "--data", table, "--epochs", 2, "--hidden_sizes", 4, "--log_interval", 3, "--out", tmp_path / "run", "--json")
    *lines, result = objects(out)
    assert code == 0 and lines == records(tmp_path / "run") and any("lr" in r for r in lines) and [r["epoch"] for r in lines if "end_of_epoch" in r] == [1, 2]
    assert result["end_of_training"] is True and (result["epoch"], result["step"], result["loss"]) == (2, lines[-1]["step"], lines[-1]["loss"])
    assert result["out"] == str(tmp_path / "run") and result["total_seconds"] > 0 and "epoch 2/2 done" in err
    code, out, _ = call(capsys, "mlp", "--data", table, "--epochs", 2, "--out", tmp_path / "run", "--hidden_sizes", 4, "--resume_from_checkpoint", "--json")
    assert code == 0 and [(r["end_of_training"], r["epoch"], r["step"]) for r in objects(out)] == [(True, 2, result["step"])], "nothing was left to train"


def test_json_of_a_smoke_run_of_a_cnn(tmp_path, capsys):
    code, out, err = call(capsys, "cnn", "--data", images(tmp_path / "i.npz"), "--epochs", 1, "--smoke", "--json")
    assert code == 0 and objects(out)[-1]["smoke"] is True and objects(out)[-1]["loss"] > 0 and "smoke: passed" in err


def test_with_json_the_words_of_a_script_go_to_standard_error(tmp_path, capsys):
    (tmp_path / "s.py").write_text("print('read')\n" + SCRIPT.replace("    x =", "    print('made')\n    x ="))
    code, out, err = call(capsys, tmp_path / "s.py", "--epochs", 1, "--json")
    assert code == 0 and objects(out)[-1]["end_of_training"] and err.startswith("read\nmade\n")


def test_with_json_an_error_is_on_standard_error(tmp_path, capsys):
    code, out, err = call(capsys, "mlp", "--data", tmp_path / "none.csv", "--json")
    assert (code, out) == (1, "") and "no such file" in err


def test_command_lines_that_do_not_fit(table, tmp_path, capsys):
    np.savez(tmp_path / "n.npz", z=np.ones(3))
    np.savez(tmp_path / "flat.npz", x=np.ones((4, 2)), y=np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "long.npz", x=np.ones((4, 2)), y=np.array([0, 1, 0]))
    np.savez(tmp_path / "small.npz", x=np.ones((4, 2, 2)), y=np.array([0, 1, 0, 1]))
    (tmp_path / "words.csv").write_text('"a, too",b\n"1",x\n')
    (tmp_path / "empty.csv").write_text("a,b\n1,2\n,3\n")
    (tmp_path / "gap.csv").write_text("a,b\n1,nan\n2,3\n")
    for code, words, message in (
        (2, ["vgg"], "there is no model 'vgg'; expected mlp, cnn, resnet, gpt, or the path of a Python file"),
        (2, ["mlp"], "mlp needs --data"),
        (2, ["mlp", "--data", table, "--validation_share", 2], "got '2'; expected a number from 0 to 1"),
        (2, ["mlp", "--data", table, "--data_fraction", -1], "got '-1'; expected a number from 0 to 1"),
        (2, ["mlp", "--data", table, "--hidden_sizes", "a,b"], "got 'a,b'; expected integers of 1 or more with commas between them, such as 32,16"),
        (2, ["mlp", "--data", table, "--hidden_sizes", "8,0"], "got '8,0'; expected integers of 1 or more"),
        (2, ["resnet", "--data", table, "--depth", 19], "hint: `pyflame train resnet --help` shows what there is"),
        (1, ["nothing.py"], "no such file; got 'nothing.py'; expected a script, or one of mlp, cnn, resnet and gpt"),
        (1, ["mlp", "--data", "nothing.csv"], "no such file; got 'nothing.csv'"),
        (1, ["mlp", "--data", table, "--target", "d"], "there is no column 'd' in"),
        (1, ["mlp", "--data", table, "--target", "goal", "--task", "classification"], "the targets are not classes"),
        (1, ["mlp", "--data", tmp_path / "n.npz"], "got the arrays z; expected x and y"),
        (1, ["mlp", "--data", tmp_path / "long.npz"], "expected one number of y for each sample"),
        (1, ["mlp", "--data", tmp_path / "flat.npz", "--target", "a"], "--target is for CSV files"),
        (1, ["cnn", "--data", tmp_path / "flat.npz"], "the samples are not images; got shape (2,)"),
        (1, ["cnn", "--data", tmp_path / "small.npz"], "the images are too small; got 2 x 2; expected 4 x 4 or more"),
        (1, ["cnn", "--data", images(tmp_path / "i.npz"), "--task", "regression"], "cnn classifies; got --task regression"),
        (1, ["mlp", "--data", tmp_path / "words.csv"], "cannot be read: the column 'b' is not of numbers; got 'x' in line 2"),
        (1, ["mlp", "--data", tmp_path / "empty.csv"], "the column 'a' is not of numbers; got '' in line 3; expected a number; hint: fill the cell"),
        (1, ["mlp", "--data", tmp_path / "gap.csv"], "got 2 samples, 1 numbers that are not finite"),
        (1, ["mlp", "--data", table, "--epochs", 0], "Trainer: epochs does not fit; got 0"),
    ):
        found, _, err = call(capsys, *words)
        assert (found, message in err) == (code, True), err
    assert "Traceback" not in err


def test_the_program_starts_it(program, table):
    """The words after `train` go on as they are; `gpt` is the program's own."""
    run = subprocess.run([program, "train", "--python", sys.executable, "mlp", "--data", str(table), "--epochs", "1", "--smoke"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and "smoke: passed" in run.stdout, run.stderr
    run = subprocess.run([program, "train", "--python", sys.executable, "vgg"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 2 and "there is no model 'vgg'" in run.stderr
    run = subprocess.run([program, "train", "--help"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 and "mlp|cnn|resnet|SCRIPT.py" in run.stdout and "gpt" in run.stdout


@pytest.fixture
def installed(tmp_path):
    """A package whose program says what it was given, as a wheel installs it. The words with which Python starts the entry point."""
    root = pathlib.Path(__file__).resolve().parents[2]
    (tmp_path / "pyflame" / "bin").mkdir(parents=True)
    (tmp_path / "pyflame" / "__init__.py").write_text("")
    for name in ("_program.py", "__main__.py"):
        (tmp_path / "pyflame" / name).write_text((root / "python/pyflame" / name).read_text())
    (tmp_path / "pyflame" / "bin" / "pyflame").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "pyflame" / "bin" / "pyflame").chmod(0o755)
    shutil.copy(root / "cli/_pyflame_start.py", tmp_path)
    assert 'pyflame = "_pyflame_start:main"' in (root / "pyproject.toml").read_text()
    return ["-c", "import _pyflame_start; _pyflame_start.main()"]


@pytest.mark.parametrize("way", ["script", "-m pyflame"])
def test_an_installed_program_gets_the_name_of_its_interpreter(tmp_path, installed, way):
    named = ["--python", sys.executable]
    for words, expected in ((["train", "mlp", "--data", "x"], ["train", *named, "mlp", "--data", "x"]), (["train", "gpt", "--data", "x"], None), (["train", "gpt", "--distributed"], ["train", *named, "gpt", "--distributed"]), (["train", "--help"], None), ([], None),
                            (["profile", "--steps", "3", "a.py", "--python", "b"], ["profile", *named, "--steps", "3", "a.py", "--python", "b"]), (["profile", "--python", "b", "a.py"], None),
                            (["debug", "run", "a.py"], ["debug", "run", *named, "a.py"]), (["debug"], None), (["memory"], None), (["memory", "snapshot", "x"], None), (["memory", "monitor", "--json"], ["memory", "monitor", "--json", *named]), (["chat", "m", "-v"], ["chat", "m", "-v", *named]), (["bench", "llm", "m"], ["bench", *named, "llm", "m"]), (["doctor"], None)):
        run = subprocess.run([sys.executable, *(installed if way == "script" else way.split()), *words], capture_output=True, text=True, timeout=60, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
        assert run.stdout.split() == (words if expected is None else expected), run.stderr


def test_every_command_that_starts_python_is_known(run):
    """Those whose help has --python; an environment need not be active for them."""
    root = pathlib.Path(__file__).resolve().parents[2]
    spec = importlib.util.spec_from_file_location("_program", root / "python/pyflame/_program.py")
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    commands = set(re.findall(r"^  ([a-z-]+)  ", run("--help").stdout, re.M))
    assert {"chat", "profile"} <= commands
    for command in commands - {"run", "train", "bench", "debug", "memory", "doctor", "llm"}:  # these hand on what they do not know, have commands of their own, or --comm
        assert ("--python" in run(command, "--help").stdout) == ("--python" in program.with_interpreter([command, "x"])), command


def test_a_package_without_its_program_says_so(tmp_path, installed):
    """The script, which has the name of the program, does not start itself."""
    (tmp_path / "pyflame" / "bin" / "pyflame").unlink()
    run = subprocess.run([sys.executable, *installed, "doctor"], capture_output=True, text=True, timeout=60, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert run.returncode == 1 and "pyflame: the program is not installed; got no program for" in run.stderr
