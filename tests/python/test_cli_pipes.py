"""Commands whose reader leaves early, as `head -1` does: they end without a word."""
import os
import subprocess
import sys

import pytest

PROGRAM = "import pyflame as pf\npf.ones(3).sum().item()\nfor i in range(20000):\n    print('a line of this program', i)\n"
PYTHON = ["--python", sys.executable]


def without_reader(words, folder, **options):
    """(exit code, standard error) of a command whose output nobody reads."""
    reads, writes = os.pipe()
    os.close(reads)
    try:
        done = subprocess.run(list(map(str, words)), stdout=writes, stderr=subprocess.PIPE, text=True, cwd=folder, timeout=120, **options)
    finally:
        os.close(writes)
    return done.returncode, done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "s.py").write_text(PROGRAM)
    (tmp_path / "b.py").write_text("import pyflame as pf\ndef h():\n    return pf.ones(8) + 1\n")
    return tmp_path


@pytest.mark.parametrize("words", [["bench", *PYTHON, "--no-record", "--seconds", "0.1", "--relative", "100", "b.py:h"], ["optimize", "--list", *PYTHON], ["tune", "--list", *PYTHON],
                                   ["explain", *PYTHON, "s.py"], ["fit", "model.py:net", *PYTHON]], ids=lambda words: words[0])  # fmt: skip
def test_commands_of_python_end_without_a_word(program, folder, words):
    (folder / "model.py").write_text("import pyflame as pf\ndef net():\n    return pf.nn.Linear(4, 4)\n")
    code, said = without_reader([program, *words], folder)
    assert said == "" and code == 141


@pytest.mark.parametrize("words", [["man"], ["completion", "bash"], ["--help"]], ids=lambda words: words[0])
@pytest.mark.parametrize("ignored", [False, True], ids=["", "SIGPIPE ignored"])
def test_commands_of_the_program_end_without_a_word(program, folder, words, ignored):
    shell = "trap '' PIPE; " if ignored else ""  # which children inherit
    code, said = without_reader(["bash", "-c", f'{shell}exec "$@"', "bash", program, *words], folder)
    assert said == "" and code in (-13, 141)


def test_the_files_of_other_options_are_written(program, folder):
    code, said = without_reader([program, "explain", *PYTHON, "--json", "e.json", "s.py"], folder)
    assert code == 141 and said == "pyflame explain: written: e.json\n" and (folder / "e.json").stat().st_size > 100


def test_a_broken_pipe_of_the_program_itself_is_told(program, folder):
    (folder / "own.py").write_text("import os, signal\nreads, writes = os.pipe()\nos.close(reads)\nos.write(writes, b'x')\n")
    done = subprocess.run([program, "explain", *PYTHON, "own.py"], capture_output=True, text=True, cwd=folder, timeout=120)
    assert done.returncode == 1 and "BrokenPipeError" in done.stderr
