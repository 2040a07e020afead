"""Blocks of a shell that nothing can run (no-run="why"): each command is one that is known here, and its words are what its program takes. Where the program is installed,
its own help says so; a profiler of a vendor is not, and has a table from the vendor's manual."""
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tools" / "site"), str(ROOT / "tests" / "python"), str(ROOT / "tests" / "tools")]

import run_doc_blocks  # noqa: E402
from test_shown_commands import blocks_of_shells, commands  # noqa: E402

BLOCKS = [(page, line, code) for page, line, way, _, _, code in blocks_of_shells() if way == "no-run"]
# Options and the values that they take (None: none, ...: any), until the program that is profiled.
# rocm.docs.amd.com/projects/rocprofiler-sdk, "Using rocprofv3"; docs.nvidia.com/nsight-systems/UserGuide, "CLI Profile Command Switch Options".
PROFILERS = {
    ("rocprofv3",): {"--marker-trace": None, "--kernel-trace": None, "--output-format": {"csv", "json", "pftrace", "otf2", "rocpd"}, "-d": ..., "--": None},
    ("nsys", "profile"): {"-t": {"cuda", "nvtx", "osrt", "cublas", "cudnn", "none"}},
}


def of_profiler(words):
    begin = next((begin for begin in PROFILERS if tuple(words[:len(begin)]) == begin), None)
    if begin is None:
        return f"the profiler has no command {' '.join(words[:2])}"
    rest = words[len(begin):]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option not in PROFILERS[begin]:
            return f"{begin[0]} has no option {option}"
        takes = PROFILERS[begin][option]
        if option == "--":
            break
        if takes is not None and (not rest or takes is not ... and not set(rest.pop(0).split(",")) <= takes):
            return f"{begin[0]} {option} takes other values"
        if takes is ...:
            rest.pop(0)
    return None if rest and (shutil.which(rest[0]) or rest[0] == "python") else "there is no program to profile"


def unknown_options(words, known):
    """The first option that the text of a help has not."""
    return next((f"{words[0]} has no option {w}" for w in words if re.match(r"-{1,2}[a-z]", w) and not re.search(rf"(?<![\w-]){re.escape(w)}(?![\w-])", known)), None)


def help_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def of_podman(words):
    options = [word for word in words[2:] if re.match(r"-{1,2}[a-z]", word)]
    options = [f"-{letter}" for word in options if not word.startswith("--") for letter in word[1:]] + [word.split("=")[0] for word in options if word.startswith("--")]  # -it
    if "-f" in words and not (ROOT / words[words.index("-f") + 1]).is_file():
        return f"there is no {words[words.index('-f') + 1]}"
    if words[1] not in ("build", "run"):
        return f"podman has no command {words[1]} here"
    return unknown_options(["podman", *options], help_of("podman", words[1], "--help")) if shutil.which("podman") else None


def of_debian(words):
    control = set(re.findall(r"^Package: (\S+)", (ROOT / "packaging/debian/control").read_text(), re.M))
    version = re.match(r"\S+ \(([^)]+)\)", (ROOT / "packaging/debian/changelog").read_text())[1]
    if words[0] == "cp":
        return None if (ROOT / words[2]).is_dir() else f"there is no folder {words[2]}"
    if words[0] == "dpkg-buildpackage":
        return unknown_options(words, help_of("dpkg-buildpackage", "--help")) if shutil.which("dpkg-buildpackage") else None
    if words[1:] == ["build-dep", "./"]:
        return None
    files = re.fullmatch(r"\.\./\{(.*)\}_(.*)_amd64\.deb", words[-1])
    if words[1] != "install" or len(words) != 3 or files is None:
        return f"apt-get is not known with {' '.join(words[1:])}"
    return None if set(files[1].split(",")) == control and files[2] == version else f"packaging/debian makes other packages; got {words[-1]}; expected {', '.join(sorted(control))} of {version}"


def of_python(words):
    if not (ROOT / words[1]).is_file():
        return f"there is no {words[1]}"
    said = subprocess.run([sys.executable, ROOT / words[1], *words[2:], "--help"], capture_output=True, text=True)  # values are looked at before the help
    return unknown_options(words[1:], said.stdout) if said.returncode == 0 else said.stderr.strip().splitlines()[-1]


PROGRAMS = {"podman": of_podman, "rocprofv3": of_profiler, "nsys": of_profiler, "cp": of_debian, "apt-get": of_debian, "dpkg-buildpackage": of_debian, "python": of_python}


def problem_of(words):
    words = words[1:] if words[0] == "sudo" else words
    if words[0] not in PROGRAMS:
        return f"nothing here knows {words[0]}; hint: a test that runs the block, or an entry of PROGRAMS"
    return PROGRAMS[words[0]](words)


@pytest.mark.parametrize("page, line, code", BLOCKS, ids=[f"{pathlib.Path(page).stem}-{line}" for page, line, _ in BLOCKS])
def test_commands(page, line, code):
    assert subprocess.run(["bash", "-n"], input=code, text=True).returncode == 0, f"{page}:{line}: bash cannot read it"
    said = [problem_of(words) for words in commands(code)]
    assert said and not any(said), f"{page}:{line}: {said}"


@pytest.mark.parametrize("command, why", [
    ("docker run x", "nothing here knows docker"),
    ("podman build -f packaging/none .", "no packaging/none"),
    ("podman push x", "no command push"),
    ("rocprofv3 --marker_trace -- python x.py", "no option --marker_trace"),
    ("rocprofv3 --output-format xml -- python x.py", "takes other values"),
    ("rocprofv3 --kernel-trace", "no program to profile"),
    ("nsys start", "no command nsys start"),
    ("nsys profile -t cuda,none2 python x.py", "takes other values"),
    ("cp -r packaging/none debian", "no folder packaging/none"),
    ("sudo apt-get install ../{pyflame}_0.1.0_amd64.deb", "makes other packages"),
    ("sudo apt-get remove x", "not known with remove x"),
    ("python benchmarks/compare_torch.py --device tpu", "invalid choice: 'tpu'"),
    ("python benchmarks/compare_torch.py --devices cuda", "no option --devices"),
    ("python benchmarks/none.py", "no benchmarks/none.py"),
])
def test_a_wrong_command_is_found(command, why):
    [words] = commands(command)
    assert why in (problem_of(words) or "")


@pytest.mark.skipif(not shutil.which("podman"), reason="podman is not installed")
@pytest.mark.parametrize("command", ["podman run --ipcs host x", "podman build -f packaging/containers/Containerfile.cpu --tags x ."])
def test_a_wrong_option_of_podman_is_found(command):
    [words] = commands(command)
    assert "podman has no option --" in problem_of(words)


def test_every_block_of_bash_can_be_read():
    """What a block does not run for, such as one that an error skips, is still the shell's language."""
    wrong = []
    for page in run_doc_blocks.pages():
        for line, language, _, code in run_doc_blocks.blocks(page.read_text(encoding="utf-8")):
            if language in ("bash", "sh"):
                said = subprocess.run(["bash", "-n"], input=code, text=True, capture_output=True)
                wrong += [f"{page.name}:{line}: {said.stderr.strip()}"] if said.returncode else []
    assert not wrong, "\n".join(wrong)
