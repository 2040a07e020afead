"""`--json` of each command: every command has it, and what it writes is JSON."""
import json
import re
import signal
import subprocess
import sys

import pytest
from test_cli_shells import SHELLS, helps, options_of  # noqa: F401

TEXT = "to be or not to be, that is the question\n" * 40
SMALL = ("--n_layer", 1, "--n_embd", 16, "--block_size", 16, "--eval_batches", 1, "--log_interval", 2, "--eval_interval", 3)


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def test_every_command_has_json(run, helps):  # noqa: F811
    python = {("bench", "llm"), ("train", "mlp")}  # Python reads their options
    commands = {path for path, text in helps.items() if path and not re.search(r"^Usage: .* SUBCOMMAND$", text, re.M)} | python
    without = {path for path in commands if "--json" not in options_of(helps.get(path) or run(*path, "--help").stdout)}
    assert len(commands) > 25 and not without


@pytest.fixture(scope="module")
def trained(program, tmp_path_factory):
    """(the folder of a run, what `train gpt --json` wrote)"""
    folder = tmp_path_factory.mktemp("gpt")
    (folder / "text.txt").write_text(TEXT)
    words = ["train", "gpt", "--data", folder / "text.txt", "--out", folder / "run", "--steps", 4, *SMALL, "--json"]
    return folder / "run", subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True)


def test_train_gpt(trained, run):
    folder, done = trained
    *records, result = objects(done.stdout)
    assert records == objects((folder / "metrics.jsonl").read_text()) and [r["step"] for r in records] == [1, 2, 3, 4]
    assert result["end_of_training"] is True and (result["step"], result["loss"], result["val_loss"]) == (4, records[-1]["loss"], records[-1]["val_loss"])
    assert result["out"] == str(folder) and "done        4 steps" in done.stderr
    (again,) = objects(run("train", "gpt", "--out", folder, "--resume", "--json").stdout)
    assert (again["step"], again["loss"]) == (4, None), "nothing was left to train"
    assert run("train", "gpt", "--data", folder / "none", "--out", folder / "x", "--json", code=1).stdout == ""


def test_generate_with_a_checkpoint(trained, run):
    words = ("generate", "--checkpoint", trained[0], "--prompt", "to be", "--max_tokens", 7)
    (found,) = objects(run(*words, "--json").stdout)
    assert found["prompt"] + found["text"] + "\n" == run(*words).stdout
    assert (found["object"], found["finish_reason"], len(found["prompt_token_ids"]), len(found["token_ids"])) == ("text_completion", "length", 5, 7)
    assert found["usage"] == {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    assert 0 < found["seconds_to_first_token"] <= found["seconds"] and found["tokens_per_second"] > 0
    (none,) = objects(run(*words, "--max_tokens", 0, "--json").stdout)
    assert (none["text"], none["token_ids"], none["seconds_to_first_token"], none["tokens_per_second"]) == ("", [], None, None)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    for package in ("regex", "jinja2"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    from pyflame.testing import language_models as small

    return small.write_random_model(tmp_path_factory.mktemp("lm") / "small", seed=3)


def test_generate_and_chat_with_a_language_model(model, run):
    (found,) = objects(run("generate", "--model", model, "--prompt", "x", "--max_tokens", 4, "--json", "--python", sys.executable).stdout)
    assert found["usage"]["completion_tokens"] == len(found["token_ids"]) and found["finish_reason"] in ("stop", "length")
    answers = objects(run("chat", model, "--max_tokens", 3, "--json", "--python", sys.executable, input="hello\nand\n").stdout)
    assert [a["message"]["role"] for a in answers] == ["assistant"] * 2 and all(a["usage"]["total_tokens"] > 0 for a in answers)


def test_serve(model, program):
    for package in ("aiohttp", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")
    p = subprocess.Popen([program, "serve", str(model), "--port", "0", "--json", "--python", sys.executable], stdout=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in p.stdout:
            lines.append(json.loads(line))
            if lines[-1]["event"] == "start":
                p.send_signal(signal.SIGTERM)
        assert p.wait(60) == 0 and lines[-1]["event"] == "end"
    finally:
        p.kill()
        p.wait()


def test_profile(run, tmp_path):
    (tmp_path / "infer.py").write_text("import pyflame as pf\nx = pf.ones(64, 64)\nprint((x @ x).sum().item())\n")
    r = run("profile", "--out", tmp_path / "out", "--no-stacks", "--json", tmp_path / "found.json", "--python", sys.executable, tmp_path / "infer.py")
    assert r.stdout.startswith("262144.0\n\n== pyflame profile: infer.py ==\n") and json.loads((tmp_path / "found.json").read_text())["time"]


@pytest.mark.parametrize("shell", SHELLS)
def test_completion(run, shell, tmp_path):
    env = {"HOME": str(tmp_path)}
    found = json.loads(run("completion", shell, "--json", env=env).stdout)
    assert found["shell"] == shell and found["script"] == run("completion", shell).stdout
    assert found["file"] == str(tmp_path) + {"bash": "/.local/share/bash-completion/completions/pyflame", "zsh": "/.local/share/zsh/site-functions/_pyflame", "fish": "/.config/fish/completions/pyflame.fish"}[shell]
    moved = json.loads(run("completion", shell, "--json", env={**env, "XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c"}).stdout)
    assert moved["file"].startswith("/c/" if shell == "fish" else "/d/")


def test_man(run, helps):  # noqa: F811
    document = json.loads(run("man", "--json").stdout)
    commands = {tuple(c["command"].split()): c for c in document["commands"]}
    assert document["program"] == "pyflame" and set(commands) == set(helps) and document["version"] in run("--version").stdout
    for path, text in helps.items():
        assert {n for o in commands[path]["options"] for n in o["names"] if n.startswith("--")} >= options_of(text), path
    options = {n: o for o in commands["train", "gpt"]["options"] for n in o["names"]}
    assert (options["--steps"]["type"], options["--steps"]["default"], options["--out"]["required"], options["--resume"]["type"]) == ("INT", "2500", False, None)
    assert options["--tokenizer"]["choices"] == ["chars", "bytes"] and options["--steps"]["help"] == "Updates in total"
    assert commands["man",]["examples"][-1] == {"command": "pyflame man --json", "meaning": "all commands and options, for programs"}
    stop = next(o for o in commands["chat",]["options"] if "--stop" in o["names"])
    assert stop["repeatable"] is True and commands["completion",]["options"][1]["positional"] is True
