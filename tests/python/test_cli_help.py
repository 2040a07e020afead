"""What `pyflame COMMAND --help` looks like: its width, its groups, its examples."""
import fcntl
import json
import os
import pathlib
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios

import pyflame
import pytest
from test_cli_shells import commands_of, helps, options_of  # noqa: F401

DATA = pathlib.Path(__file__).resolve().parents[1] / "inspect" / "data"
GROUPS = ["Look at this machine", "Train and run models", "Make a program faster", "Find what is wrong with a program", "Look into files", "Set up the shell"]
BY_PYTHON = ("bench", "llm")  # Python reads its options, and has its --help


def examples_of(text):
    return re.findall(r"^  (\S.*)$", text.partition("\nExamples:\n")[2], re.M)


def on_a_terminal(command, columns, **variables):
    """What the command writes on a terminal of so many columns."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", **variables}
    for name in ("COLUMNS", "NO_COLOR"):
        if name not in variables:
            environment.pop(name, None)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=side, stderr=subprocess.DEVNULL, env=environment)
    os.close(side)
    written = b""
    while True:
        try:
            piece = os.read(main, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not piece:
            break
        written += piece
    os.close(main)
    process.wait(timeout=60)
    return written.decode("utf-8").replace("\r\n", "\n")


def one_line(text):
    assert text.count("\n") == 1, text
    return text


def widest(text):
    return max((re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in text.split("\n")), key=len)


def test_no_line_is_wider_than_60_columns(program, helps):  # noqa: F811
    for path in helps:
        text = subprocess.run([program, *path, "--help"], capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "60"}).stdout
        assert len(widest(text)) <= 60, (path, widest(text))


def test_nothing_is_lost_in_a_narrow_terminal(run):
    wide, narrow = (run("serve", "--help", env={**os.environ, "COLUMNS": c}).stdout for c in ("1000", "60"))
    letters = lambda text: "".join(text.split())  # noqa: E731
    assert letters(wide) == letters(narrow) and narrow.count("\n") > wide.count("\n")


@pytest.mark.parametrize("command, arguments", [("explain", "FILE.py [ARGUMENT ...]"), ("profile", "FILE.py [ARGUMENT ...]"), ("debug run", "FILE.py [ARGUMENT ...]"),
                                                ("tune", "[FILE.py [ARGUMENT ...]]"), ("optimize", "[FILE.py [ARGUMENT ...]]"), ("bench", "[what...] [SUBCOMMAND]"), ("info", "")])
def test_the_usage_names_the_program(run, command, arguments):
    assert f"\nUsage: pyflame {command} [OPTIONS] {arguments}".rstrip() + "\n" in run(*command.split(), "--help").stdout


@pytest.mark.parametrize("command", ["explain", "profile", "tune", "optimize", "debug run"])
def test_a_command_without_its_program_says_what_it_expects(run, command):
    assert "there is no program; got no file and no -m; expected FILE.py, or -m MODULE; hint: pyflame" in run(*command.split(), code=1).stderr


@pytest.mark.parametrize("command", ["profile", "explain", "tune --compare 0 --budget 1s", "optimize --budget 1s", "debug run", "run --nproc 1"])
@pytest.mark.parametrize("words, seen", [("-- program.py --out 1 -- 2", ["--out", "1", "--", "2"]), ("program.py -- --out 1", ["--", "--out", "1"]), ("-m program -- --out 1", ["--out", "1"])])
def test_two_dashes_end_the_options(run, tmp_path, command, words, seen):
    (tmp_path / "program.py").write_text("import json, pathlib, sys\npathlib.Path(__file__).with_name('seen.json').write_text(json.dumps(sys.argv[1:]))\n")
    run(*command.split(), *words.split(), code=None, cwd=tmp_path)  # tune and optimize have nothing to compare
    assert json.loads((tmp_path / "seen.json").read_text()) == seen


@pytest.mark.parametrize("command", ["profile", "explain", "tune", "optimize", "debug run"])
def test_what_follows_two_dashes_is_no_option(run, command):
    assert "there is no such file; got '--version'" in run(*command.split(), "--", "--version", code=1).stderr


@pytest.mark.parametrize("command", ["profile", "explain", "debug run"])
@pytest.mark.parametrize("module", ["nonesuch", "nonesuch.inner", "."])
def test_a_module_that_is_not_there(run, tmp_path, command, module):
    assert f"there is no such module; got '{module}'; expected a module that Python finds from this folder" in one_line(run(*command.split(), "-m", module, code=1, cwd=tmp_path).stderr)
    assert not list(tmp_path.iterdir())


def test_one_parser_reads_all_command_lines():
    """The one that says in a line what is wrong, in the place of the usage of a module."""
    package = pathlib.Path(pyflame.__file__).parent
    assert [str(p) for p in package.rglob("*.py") if "ArgumentParser(" in p.read_text(encoding="utf-8") and p.name != "_command_help.py"] == []


@pytest.mark.parametrize("columns, most", [(60, 60), (20, 60), (100, 100), (300, 120)])
def test_the_width_is_that_of_the_terminal(program, columns, most):
    width = len(widest(on_a_terminal([program, "serve", "--help"], columns)))
    assert most - 20 < width <= most


@pytest.mark.parametrize("columns", ["", "wide", "-3", "0"])
def test_columns_that_are_no_number(run, columns):
    assert 60 < len(widest(run("serve", "--help", env={**os.environ, "COLUMNS": columns}).stdout)) <= 100


def test_commands_are_in_groups(run):
    text = run("--help").stdout
    assert re.findall(r"^([A-Z].*):$", text, re.M) == ["Options", *GROUPS]
    assert "pyflame COMMAND --help" in text


def test_bench_llm_by_the_interpreter():
    """The words that name the interpreter are not among those that Python reads."""
    done = subprocess.run([sys.executable, "-m", "pyflame", "bench", "llm", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "--batch_sizes" in done.stdout, done.stderr
    done = subprocess.run([sys.executable, "-m", "pyflame", "bench", "--python", "/no/such/python", "llm", "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "/no/such/python" in done.stderr, done.stderr


@pytest.mark.parametrize("words", [("train", "mlp"), ("bench", "llm"), ("run", "--nproc", "1")], ids=" ".join)
def test_helps_that_python_writes_look_like_the_others(run, words):
    text = run(*words, "--help", env={**os.environ, "COLUMNS": "60"}).stdout
    assert len(widest(text)) <= 60, widest(text)
    options = re.findall(r"^  (?:-\w, )?(--[\w, -]+?)(?=  |\n| [A-Z{\[])", text, re.M)
    assert len(options) > 9 and all(len({n.replace("_", "-") for n in names}) == len(names) for names in (o.split(", ") for o in options)), options
    known = {name for o in options for name in o.split(", ")}
    shown = examples_of(text)
    assert len(shown) > 1 and all(e.startswith("pyflame ") and {w for w in e.split() if w.startswith("--")} - {"--epochs"} <= known for e in shown)
    assert "(default: None)" not in text and "(default: False)" not in text


def test_every_command_has_examples_that_exist(helps):  # noqa: F811
    for path, text in helps.items():
        if path in ((), BY_PYTHON):
            continue
        examples = examples_of(text)
        assert examples, f"pyflame {' '.join(path)} --help has no example"
        for example in examples:
            words = shlex.split(re.search(r"pyflame [^|>)]*", example)[0])[1:]
            command = ()
            while words and words[0] in commands_of(helps[command]):
                command = (*command, words.pop(0))
            assert command[:1] == path[:1], example
            known = options_of(helps[command]) | {"--nproc"}
            assert {w for w in words if w.startswith("--")} - {"--epochs"} <= known, example


@pytest.mark.parametrize("args", [(), ("doctor",), ("doctor", "--verbose"), ("env", "--arch", "gfx942"), ("occupancy", "--arch", "gfx942", "--vgpr", "96"), ("occupancy", "--list"), ("info",), ("inspect", DATA / "isa" / "isa_gfx1030.co")])
def test_results_fit_60_columns(program, args):
    text = on_a_terminal([program, *args], 60)
    assert text.strip() and len(widest(text)) <= 60, widest(text)


def test_no_colour_with_NO_COLOR(program):
    assert "\x1b[" in on_a_terminal([program, "doctor"], 100)
    assert "\x1b[" not in on_a_terminal([program, "doctor"], 100, NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal([program, "doctor"], 100, TERM="dumb")


@pytest.mark.parametrize("words, expected", [
    (["docter"], "not understood: 'docter'; hint: did you mean doctor? `pyflame --help` shows"),
    (["doctor", "--jsn"], "not understood: '--jsn'; hint: did you mean --json? `pyflame doctor --help` shows"),
    (["occupancy", "--arch", "gfx942", "--vgprs=3"], "not understood: '--vgprs=3'; hint: did you mean --vgpr? `pyflame occupancy --help` shows"),
    (["version"], "not understood: 'version'; hint: did you mean --version? `pyflame --help` shows"),
    (["debug", "train.py"], "not understood: 'train.py'; hint: did you mean pyflame debug run train.py? `pyflame debug --help` shows"),
    (["generate", "model.gguf", "hello"], "not understood: 'hello'; hint: did you mean --prompt 'hello'? `pyflame generate --help` shows"),
    (["doctor", "now"], "not understood: 'now'; hint: the command takes no further word; `pyflame doctor --help` shows"),
    (["nothing-of-the-kind"], "not understood: 'nothing-of-the-kind'; hint: `pyflame --help` shows"),
    (["profile", "--steps", "three", "train.py"], "--steps: not a valid value; got 'three'; expected a number of at least 0; hint: `pyflame profile --help` shows"),
    (["train", "mlp"], "pyflame train: mlp needs --data; hint: `pyflame train mlp --help` shows"),
    (["train", "mlp", "--epochs", "many"], "pyflame train: --epochs: not a whole number; got 'many'; expected one such as 3; hint: `pyflame train mlp --help` shows"),
    (["bench", "llm"], "one of the arguments --latency --throughput --serve is required; hint: `pyflame bench llm --help` shows"),
    (["run", "--nproc", "two", "train.py"], "pyflame run: --nproc: not a number of processes; got two; expected at least 1, or gpu; hint: `pyflame run --nproc 1 --help` shows"),
    (["chat"], "MODEL is required (A GGUF file, a Hugging Face folder, or an installed package with one of these); hint: `pyflame chat --help` shows"),
    (["diagnose"], "pid is required (The number of the process); hint"),
    (["tune", "--budget", "abc", "train.py"], "pyflame tune: --budget: not a time; got 'abc'; expected seconds, or a number with s, m or h, such as 90s or 10m; hint: `pyflame tune --help` shows"),
    (["tune", "--entries", ":", "train.py"], "pyflame tune: --entries: not names of entries; got ':'; expected names"),
    (["optimize", "--hang", "-1", "train.py"], "pyflame optimize: --hang: not a time; got '-1'; expected seconds"),
    (["profile", "--steps", "1.5", "train.py"], "pyflame: --steps: not a valid value; got '1.5'; expected a whole number; hint: `pyflame profile --help` shows"),
    (["chat", "--temperature", "warm", "m"], "pyflame: --temperature: not a valid value; got 'warm'; expected a number; hint: `pyflame chat --help` shows"),
    (["bench", "llm", "--latency", "--batch_sizes", "x"], "pyflame bench llm: --batch_sizes: not a whole number; got 'x'; expected one such as 3; hint"),
    (["run", "--rdzv-timeout", "x", "train.py"], "pyflame run: --rdzv-timeout: not a number; got 'x'; expected one such as 0.5; hint"),
    (["run", "--bind", "x", "train.py"], "pyflame run: --bind: there is no such choice; got 'x'; expected none, cores, numa; hint"),
    (["run", "--nproc", "1"], "pyflame run: there is no program; got no file and no module; expected the file of a Python program; hint: -m for a module, and `pyflame run --nproc 1 --help` shows"),
    (["run", "--threads", "2", "--nonsense", "train.py"], "pyflame run: not understood: '--nonsense'; hint: `pyflame run --nproc 1 --help` shows"),
    (["train", "mlp", "--data"], "pyflame train: --data: there is no value; got none; expected one; hint"),
    (["train", "mlp", "--data", "t.csv", "--nonsense"], "pyflame train: not understood: '--nonsense'; hint: `pyflame train mlp --help` shows"),
    (["train", "mlp", "--task", "x"], "pyflame train: --task: there is no such choice; got 'x'; expected regression, classification; hint"),
    (["train", "mlp", "--validation_share", "x"], "pyflame train: --validation_share: not a share; got 'x'; expected a number from 0 to 1; hint"),
    (["train", "mlp", "--hidden_sizes", "a,b"], "pyflame train: --hidden_sizes: not widths of layers; got 'a,b'; expected integers of 1 or more with commas between them, such as 32,16; hint"),
    (["profile", "--step", "5", "train.py"], "not understood: '--step'; hint: did you mean --steps? `pyflame profile --help` shows"),
    (["debug", "run", "--pois", "train.py"], "not understood: '--pois'; hint: did you mean --poison? `pyflame debug run --help` shows"),
])
def test_a_misspelt_word_is_answered_with_what_was_meant(run, words, expected):
    told = run(*words, code=2).stderr
    assert expected in told and told.count("\n") == 1
