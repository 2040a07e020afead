"""`pyflame completion`, `pyflame man`, and `pyflame` alone."""
import pathlib
import re
import shutil
import subprocess

import pytest

SHELLS = ["bash", "zsh", "fish"]


def commands_of(text):
    """The commands of a --help, in their order."""
    part = re.split(r"^Options:\n", text, maxsplit=1, flags=re.M)[-1].split("\nExamples:")[0]
    return re.findall(r"^  ([a-z][a-z-]*) ", part, re.M)


def options_of(text):
    return {name for line in text.splitlines() if line.startswith("  -") for name in line.split()[0].split(",") if name.startswith("--")}


@pytest.fixture(scope="module")
def helps(program):
    """{path: text of --help} of all commands."""
    found, waiting = {}, [()]
    while waiting:
        path = waiting.pop()
        if path == ("bench", "llm"):  # Python reads its options
            found[path] = ""
            continue
        found[path] = subprocess.run([program, *path, "--help"], capture_output=True, text=True, check=True).stdout
        waiting += [(*path, c) for c in commands_of(found[path])]
    return found


def complete(program, *words):
    """What bash offers for the last word."""
    code = f'source <("{program}" completion bash)\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _pyflame; printf "%s\\n" "${{COMPREPLY[@]}}"'
    return subprocess.run(["bash", "-c", code, "bash", *words], capture_output=True, text=True, check=True).stdout.split()


def test_bash_offers_what_help_shows(program, helps):
    assert len(helps) > 25
    for path, text in helps.items():
        if len(path) < 2 and path not in ((), ("train",), ("report",), ("chat",)):
            continue  # a process each
        assert set(complete(program, "pyflame", *path, "--")) >= options_of(text), path
        assert set(complete(program, "pyflame", *path, "")) >= set(commands_of(text)), path


def test_values_files_and_choices(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace.json").touch()
    assert complete(program, "pyflame", "completion", "f") == ["fish"]
    assert set(complete(program, "pyflame", "train", "gpt", "--tokenizer", "")) == {"chars", "bytes"}
    assert complete(program, "pyflame", "report", "tr") == ["trace.json"]
    assert complete(program, "pyflame", "report", "--html", "tr") == ["trace.json"]


def test_files_are_offered_only_where_no_word_fits(program, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    assert complete(program, "pyflame", "do") == ["doctor"] and complete(program, "pyflame", "docs") == ["docs"]
    assert "compadd -- ${=known} || _files" in run("completion", "zsh").stdout  # as bash; a zsh without a terminal completes nothing
    if shutil.which("fish"):
        (tmp_path / "pyflame.fish").write_text(run("completion", "fish").stdout)
        for line, word in [("pyflame docto", "doctor"), ("pyflame doctor --rec", "--record"), ("pyflame doctor li", "lint"), ("pyflame train gpt --tokenizer by", "bytes")]:
            offered = subprocess.run(["fish", "--no-config", "-c", f"source pyflame.fish; complete -C '{line}'"], capture_output=True, text=True, check=True).stdout
            assert [o.split("\t")[0] for o in offered.splitlines()] == [word], line


ZSH = """zmodload zsh/zpty
zpty z {zsh} -f -i
zpty -w z 'autoload -Uz compinit; compinit -u -D; bindkey -e; source <("{program}" completion zsh); print REA""DY'
zpty -r -m z screen '*READY*'
zpty -w -n z $'{line}\\t'
zpty -r -m z screen '*{word}*' && print -rn -- completed
"""


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
@pytest.mark.parametrize(("line", "word"), [("pyflame docto", "doctor"), ("pyflame doctor --rec", "--record"), ("pyflame train gpt --tokenizer by", "bytes")])
def test_a_zsh_on_a_terminal_completes(program, tmp_path, line, word):
    (tmp_path / "try.zsh").write_text(ZSH.format(zsh=shutil.which("zsh"), program=program, line=line, word=word))
    r = subprocess.run(["zsh", "-f", "try.zsh"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert r.stdout.endswith("completed"), r


def test_the_line_for_fish_of_docs_cli(program, tmp_path):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
    line = re.search(r"^```fish [^\n]*\n(.*?)^```$", page, re.M | re.S)[1]
    (tmp_path / "pyflame").symlink_to(program)
    code = f"set -x PATH {tmp_path} $PATH\n{line}\ncomplete -C 'pyflame docto'"
    r = subprocess.run(["fish", "--no-config", "-c", code], capture_output=True, text=True, check=True)
    assert r.stdout.split("\t")[0] == "doctor" and not r.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_scripts_name_every_command(run, helps, shell):
    script = run("completion", shell).stdout
    for path in helps:
        assert not path or f"'{' '.join(path)}'" in script, path
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=script, text=True, capture_output=True).returncode == 0


def test_a_shell_that_is_not_known(run):
    r = run("completion", "csh", code=2)
    assert "csh" in r.stderr and "bash" in r.stderr and r.stderr.count("\n") == 1 and not r.stdout


def test_man_has_every_command_and_option(run, helps):
    page = run("man").stdout
    for path, text in helps.items():
        section = page.split(f".SH PYFLAME {' '.join(path)}\n".replace("-", "\\-") if path else ".SH OPTIONS\n")[1].split(".SH ")[0]
        for option in options_of(text):
            assert "\\fB" + option.replace("-", "\\-") + "\\fR" in section, (path, option)
    assert page.startswith(".TH PYFLAME 1 ") and ".SH EXIT STATUS\n" in page
    if shutil.which("groff"):
        assert subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, text=True, capture_output=True).stderr == ""


def tried(text):
    return [line.strip() for line in text.splitlines() if line.startswith("  pyflame ")]


def test_alone_without_a_model(run, tmp_path):
    text = run(cwd=tmp_path).stdout
    commands = tried(text)
    assert len(commands) == 3 and "pyflame doctor" in commands and "chat" not in text
    assert not any(word.isupper() for command in commands for word in command.split()), "each can be pasted as it is"
    for command in commands:
        run(*command.split()[1:2], "--help")


def test_alone_with_a_model(run, tmp_path):
    (tmp_path / "it's a model.gguf").touch()
    commands = tried(run(cwd=tmp_path).stdout)
    assert len(commands) == 3 and commands[0] == "pyflame chat './it'\\''s a model.gguf'"
    folder = tmp_path / "amodel"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    assert "amodel" not in run(cwd=tmp_path).stdout  # no weights
    (folder / "model.safetensors").touch()
    assert tried(run(cwd=tmp_path).stdout)[0] == "pyflame chat ./amodel"
