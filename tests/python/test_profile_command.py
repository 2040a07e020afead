"""`pyflame profile`: runs a program as Python does, and reports where its time goes."""
import gzip
import json
import re
import signal
import subprocess
import sys

import pytest

from pyflame.profiler import ceilings

TRAIN = """
import sys
import time

import pyflame as pf


def slow_part():
    time.sleep(0.02)


if __name__ == "__main__":
    layer = pf.nn.Linear(16, 16)
    optimizer = pf.optim.SGD(layer.parameters(), lr=0.1)
    x = pf.ones(4, 16)
    for _ in range(int(sys.argv[1])):
        slow_part()
        optimizer.zero_grad()
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
    print("arguments:", sys.argv[1:], "loss:", loss.item() == loss.item())
    sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def read(out):
    with gzip.open(out / "trace.json.gz") as file:
        return json.load(file)["traceEvents"]


def test_a_training_program(run, folder):
    r = run("profile", "--out", folder / "out", "--python", sys.executable, "--skip", 2, "--steps", 5, folder / "train.py", 12, 7, code=7)
    own, report = r.stdout.split("\n== pyflame profile: train.py ==\n")
    assert own == "arguments: ['12', '7'] loss: True\n", "the program's output is its own"
    assert report.startswith("No step runs") and "slow_part" in report and "host-code" in report and "at most" in report
    assert f"the recording has ended, and the program goes on; its report is in {folder / 'out/report.txt'} and follows here at the end" in r.stderr and "slow_part" not in r.stderr
    document = json.loads((folder / "out/report.json").read_text())
    assert document["time"]["steps"]["count"] == 4, "five steps were recorded; the last has no step after it"
    assert "slow_part" in document["verdict"] and (folder / "out/report.txt").read_text() == report
    assert "<html" in (folder / "out/report.html").read_text()
    assert {"ProfilerStep#2", "ProfilerStep#5"} <= {e["name"] for e in read(folder / "out")}, "two steps had run before"


def test_the_roofline_of_the_cpu(run, folder, monkeypatch):
    """The rates are those that the file of ceilings has: nothing is measured."""
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(folder / "cache"))
    figure = lambda rate: {"rate": rate, "spread": 0.01, "date": "2026-01-02"}  # noqa: E731
    (folder / "cache").mkdir()
    (folder / "cache" / ceilings.FILE).write_text(json.dumps({ceilings._key("cpu"): {ceilings.MEMORY: figure(100.0), "float32": figure(1000.0)}}))
    r = run("profile", "--out", folder / "out", "--python", sys.executable, "--skip", 2, "--steps", 5, folder / "train.py", 12, 0)
    assert "\nceilings   100 GB/s, 1000 GFLOP/s in float32 (measured on this machine on 2026-01-02)\n" in r.stdout
    assert re.search(r"step +kind +share +calls +mean +GFLOP/s +GB/s +roofline\n", r.stdout)
    document = json.loads((folder / "out/report.json").read_text())
    assert document["device"]["peaks"]["bandwidth_gbs"] == 100 and document["device"]["peaks"]["fp32_tflops"] == 1
    roofs = {k["name"]: k["roofline"] for k in document["kernels"]}
    product = next(roof for name, roof in roofs.items() if "matmul" in name and roof["flops"])
    at_most = min(1.0, product["flops"] / product["bytes"] * 100 / 1e3)  # TFLOP/s
    assert product["of_peak"] == pytest.approx(product["tflops"] / at_most, rel=0.2, abs=2e-4) and product["bound"] in ("memory", "compute", "latency")
    assert "Roofline: arithmetic per byte" in (folder / "out/report.html").read_text()


def test_ceilings_that_are_not_known_are_measured_and_kept(run, folder, monkeypatch):
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(folder / "cache"))
    r = run("profile", "--out", folder / "out", "--python", sys.executable, "--skip", 1, "--steps", 2, folder / "train.py", 4, 0)
    assert "\nceilings   " in r.stdout and "GFLOP/s in float32 (measured on this machine" in r.stdout
    kept = json.loads((folder / "cache" / ceilings.FILE).read_text())
    assert [set(figures) for figures in kept.values()] == [{ceilings.MEMORY, "float32"}]


def test_nothing_is_measured_beside_a_program_that_goes_on(run, folder, monkeypatch):
    monkeypatch.setenv("PYFLAME_CACHE_DIR", str(folder / "cache"))
    (folder / "loop.py").write_text("import time\nimport pyflame as pf\nx = pf.ones(8, 8)\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end:\n    (x @ x).sum().item()\n")
    r = run("profile", "--out", folder / "out", "--python", sys.executable, "--seconds", 0.3, folder / "loop.py")
    assert "there is no roofline: the ceilings of the CPU are not known" in r.stderr and "ceilings" not in r.stdout and "roofline" not in r.stdout
    assert not (folder / "cache" / ceilings.FILE).exists()


def test_a_program_without_an_optimizer_is_recorded_from_its_start(run, folder):
    (folder / "infer.py").write_text("import pyflame as pf\nx = pf.ones(64, 64)\nprint((x @ x).sum().item())\n")
    r = run("profile", "--out", "out", "--python", sys.executable, "--no-stacks", "infer.py")
    assert r.stdout.startswith("262144.0\n\n== pyflame profile: infer.py ==\n") and "GEMM" in r.stdout and "GEMM" not in r.stderr and "goes on" not in r.stderr
    assert any("matmul" in e["name"] for e in read(folder / "out") if e.get("cat") == "kernel")


def test_a_program_without_ops(run, folder):
    (folder / "empty.py").write_text("print('nothing to compute')\n")
    r = run("profile", "--out", "out", "--python", sys.executable, "--no-stacks", "empty.py")
    report = r.stdout.partition("== pyflame profile: empty.py ==\n")[2]
    assert "pyflame profile: the program recorded no ops of PyFlame; those of the processes that it starts are not recorded\n" in r.stderr
    assert report.startswith("No step ran in this profile.\n\ninput ")
    assert "--gfx" not in report and "--product" not in report, "profile has none of these options, and there is no work of a device whose roofline they would give"
    assert "not understood: '--gfx'" in run("profile", "--gfx", "gfx942", "empty.py", code=2).stderr


def test_a_program_that_goes_to_another_folder(run, folder):
    (folder / "goes.py").write_text("import os\nimport pyflame as pf\nos.mkdir('sub')\nos.chdir('sub')\nprint(pf.ones(3).sum().item())\n")
    r = run("profile", "--python", sys.executable, "--no-stacks", "--json", "d.json", "goes.py")
    (out,) = folder.glob("profile-goes-*")
    assert {path.name for path in out.iterdir()} == {"trace.json.gz", "report.txt", "report.html", "report.json"} and (folder / "d.json").exists()
    assert r.stderr.partition("\n")[2] == f"pyflame: the page is in {out.name}/report.html\npyflame profile: {out.name}/trace.json.gz opens in ui.perfetto.dev\n", "beside the line about steps: few folders are not worth a word"
    assert not list((folder / "sub").iterdir())


def test_many_folders_of_profiles_are_told(run, folder):
    (folder / "empty.py").write_text("")
    kept = folder / "profile-train-20260101-1200"
    kept.mkdir()
    for i in range(24):
        (folder / f"profile-train of mine-20260101-1200{i:02}").mkdir()
        (folder / f"profile-train of mine-20260101-1200{i:02}/trace.json.gz").write_bytes(b"x" * 2**17)
    assert "folders of profiles" not in run("profile", "--python", sys.executable, "--no-stacks", "--out", "one", "empty.py").stderr
    said = run("profile", "--python", sys.executable, "--no-stacks", "empty.py").stderr
    assert "there are 25 folders of profiles here, of 3 MiB; hint: --keep 5 deletes all but the newest five; --out FOLDER writes every run into one folder" in said
    said = run("profile", "--python", sys.executable, "--no-stacks", "--keep", 5, "empty.py").stderr
    assert "--keep 5: " in said and "folders of profiles" not in said
    left = {path.name for path in folder.glob("profile-*")}
    assert len(left) == 6 and kept.name in left and any(name.startswith("profile-empty-") for name in left)


def test_only_folders_of_profiles_are_deleted(run, folder):
    """Not: a link, a folder without a trace or with another name, one with a file or a folder of the user's in it, and one that is newer."""
    (folder / "empty.py").write_text("")
    for name in ("profile-a-20260101-120000", "profile-b-20260101-120001", "profile-notes-20260101-120002", "profile-folder-20260101-120003", "profile-a-20260101-12000x", "mine-20260101-120000",
                 "elsewhere", "profile-later-29990101-120000"):  # fmt: skip
        (folder / name).mkdir()
        for file in ("trace.json.gz", "report.html", "report.txt", "report.json"):
            (folder / name / file).write_text("x")
    (folder / "profile-notes-20260101-120002/notes.txt").write_text("mine")
    (folder / "profile-folder-20260101-120003/report").mkdir()
    (folder / "profile-without-20260101-120004").mkdir()
    (folder / "profile-link-20260101-120005").symlink_to(folder / "elsewhere")
    before = {path.name for path in folder.iterdir()}
    said = run("profile", "--python", sys.executable, "--no-stacks", "--keep", 1, "empty.py").stderr
    assert "--keep 1: 2 folders of earlier profiles were deleted" in said
    assert "profile-notes-20260101-120002 is not deleted: it has files that are not of a profile; got notes.txt" in said
    after = {path.name for path in folder.iterdir()}
    assert before - after == {"profile-a-20260101-120000", "profile-b-20260101-120001"} and len(after - before) == 1
    assert all(len(list((folder / name).iterdir())) >= 4 for name in after if (folder / name / "trace.json.gz").exists())


@pytest.mark.parametrize("words, why", [(("--keep", 0), "--keep"), (("--keep", 2, "--out", "one"), "--keep has nothing to delete beside --out; got both; expected one of them; hint: ")])
def test_what_keep_does_not_take(run, folder, words, why):
    (folder / "empty.py").write_text("")
    r = run("profile", *words, "empty.py", code=None)
    assert r.returncode != 0 and why in r.stderr
    assert not list(folder.glob("profile-*"))


def test_the_set_up_of_first_runs_is_told_apart(run, folder):
    (folder / "first.py").write_text("import pyflame as pf\nx = pf.randn(64, 64)\nfor i in range(100):\n    (x @ x).relu().sum().item()\n")
    r = run("profile", "--out", "out", "--python", sys.executable, "--no-stacks", "first.py")
    events = [e for e in read(folder / "out") if e.get("cat") == "kernel" and "matmul" in e["name"]]
    time, first = json.loads((folder / "out/report.json").read_text())["time"], max(e["dur"] for e in events)
    if len(events) < 3 or first < 3000:  # each op is alone, or the library of this machine sets itself up at once
        pytest.skip("no first run took long here")
    assert first / 2 < time["set_up"]["us"] < 2 * first and "matmul" in time["set_up"]["longest"] and time["gpu_busy_us"] + time["set_up"]["us"] > sum(e["dur"] for e in events)
    assert "\nset-up " in r.stdout and "more in first runs than in later ones" in r.stdout


def test_a_module(run, folder):
    r = run("profile", "--out", "out", "--python", sys.executable, "-m", "train", 4, 0)
    assert r.stdout.startswith("arguments: ['4', '0']") and (folder / "out/report.html").exists()


def profiled(*words):
    """`pyflame profile` without the program's own reading of the command line: (exit code, output, errors)."""
    r = subprocess.run([sys.executable, "-m", "pyflame.profiler", *map(str, words)], capture_output=True, text=True, timeout=300)
    return r.returncode, r.stdout, r.stderr


def test_the_document_goes_to_a_file(program, folder):
    words = ("--pyflame", program, "--out", "out", "--skip", 2, "--steps", 3, "--no-stacks")
    code, out, _ = profiled(*words, "--json", "found.json", "--", "train.py", 8, 7)
    assert code == 7 and out.startswith("arguments: ['8', '7'] loss: True\n\n== pyflame profile: train.py ==\n"), "the output comes first, and the exit code is the program's"
    document = json.loads((folder / "found.json").read_text())
    assert document["time"]["steps"]["count"] == 2 and document == json.loads((folder / "out/report.json").read_text())
    code, out, err = profiled(*words, "--json", "none/found.json", "--", "train.py", 8, 0)
    assert (code, out) == (1, "") and re.search(r"the folder of --json does not exist; got '.*none/found.json'; expected a path in a folder that exists", err)
    code, out, err = profiled(*words, "--json", folder, "--", "train.py", 8, 0)
    assert code == 1 and out and "the file of --json cannot be written; got " in err and "Is a directory" in err
    code, _, err = profiled("--pyflame", "/bin/false", *words[2:], "--json", "other.json", "--", "train.py", 8, 0)
    assert code == 1 and "there is no document for --json: " in err and not (folder / "other.json").exists()


def test_a_program_that_fails_is_reported_all_the_same(run, folder):
    (folder / "fails.py").write_text("import pyflame as pf\nprint(pf.ones(2).sum().item())\nraise KeyError('mine')\n")
    r = run("profile", "--out", "out", "--python", sys.executable, "fails.py", code=1)
    assert "KeyError: 'mine'" in r.stderr and (folder / "out/report.html").exists()


FORKS = """
import atexit
import os
import sys

import pyflame as pf

x = pf.ones(10, 10)
print("parent:", (x @ x).sum().item(), flush=True)
child = os.fork()
atexit.register(lambda: print("end of", "parent" if child else "child", flush=True))
if child == 0:
    print("child:", (x @ x).sum().item(), flush=True)
    sys.exit(3)
print("child's code:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("words", [["profile", "--out", "out"], ["profile", "--no-stacks", "--out", "out"], ["explain", "--no-times"], ["debug", "run"]])
def test_a_process_that_the_program_forks_ends_without_a_report(run, folder, words):
    (folder / "forks.py").write_text(FORKS)
    r = run(*words, "--python", sys.executable, "forks.py", timeout=120)
    lines = r.stdout.splitlines()
    assert lines[:4] == ["parent: 1000.0", "child: 1000.0", "end of child", "child's code: 3"]
    report = "\n".join(lines[4:]) + r.stderr
    word = {"profile": "== pyflame profile", "explain": "== pyflame explain", "debug": "no access outside of a buffer was found"}[words[0]]
    assert report.count(word) == 1, report


def test_a_folder_that_cannot_be_made(run, folder):
    (folder / "file").write_text("")
    r = run("profile", "--out", "file/out", "--python", sys.executable, "train.py", code=1)
    assert r.stderr.strip().endswith("the folder of the report cannot be made: Not a directory; got 'file/out'; hint: --out FOLDER")


def test_errors(run, folder):
    assert "profile: there is no program; got no file and no -m; expected FILE.py, or -m MODULE; hint: pyflame profile train.py" in run("profile", code=1).stderr
    assert "there is no such file; got 'nothing.py'; expected a Python program" in run("profile", "--python", sys.executable, "nothing.py", code=1).stderr


def test_a_program_of_pytorch(run, folder):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (folder / "torch_train.py").write_text(TRAIN.replace("import pyflame as pf", "import torch as pf").replace("layer(x)", "layer(x)"))
    run("profile", "--out", "out", "--python", sys.executable, "--skip", 1, "--steps", 3, "torch_train.py", 6, 0)
    assert any(e.get("name") == "aten::addmm" for e in read(folder / "out"))


def test_what_the_machine_did_is_summed_up():
    from pyflame.profiler.machine import MachineSampler

    sampler = MachineSampler(["rocm:0"])
    for i, (power, limited) in enumerate(((300.0, False), (690.0, True), (700.0, True))):
        sampler.rows.append((1000 * i, "rocm:0", {"power_w": power, "power_limit_w": 700.0, "power_limit": limited, "clock_mhz": 2100.0}))
    assert sampler.summary() == ["rocm:0: power 690 W (300 to 700), of at most 700 W; clock 2100 MHz", "rocm:0: its clock was lowered because of its power limit in 67 % of the samples"]
    assert list(sampler.counters(1000))[0] == {"ph": "C", "name": "power of rocm:0 (W)", "ts": 0.0, "args": {"W": 690.0}}


def test_a_trace_that_cannot_be_written_takes_the_report_not_the_program(run, folder):
    (folder / "out").mkdir()
    (folder / "out/trace.json.gz").mkdir()
    r = run("profile", "--out", folder / "out", "--python", sys.executable, "--skip", 2, "--steps", 3, folder / "train.py", 8, 0, code=1)
    assert r.stdout == "arguments: ['8', '0'] loss: True\n" and "Traceback" not in r.stderr
    assert re.search(r"^pyflame profile: there is no report: .*trace\.json\.gz", r.stderr, re.M)


def test_a_report_that_cannot_be_written_is_printed(run, folder):
    (folder / "out/report.json").mkdir(parents=True)
    r = run("profile", "--out", folder / "out", "--python", sys.executable, "--skip", 2, "--steps", 3, folder / "train.py", 8, 0)
    assert "Next: " in r.stdout and "report.json cannot be written: Is a directory" in r.stderr and (folder / "out/report.txt").exists()


def test_an_interrupted_program_is_reported(program, folder):
    """What was recorded is computed first, which a line says."""
    (folder / "endless.py").write_text(TRAIN.replace("range(int(sys.argv[1]))", "iter(int, 1)").replace("optimizer.step()", "optimizer.step(); print(loss.item(), flush=True)"))
    p = subprocess.Popen([program, "profile", "--out", str(folder / "out"), "--python", sys.executable, "--steps", "0", str(folder / "endless.py")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a shell's background job ignores it
    for _ in range(12):
        p.stdout.readline()
    p.send_signal(signal.SIGINT)
    report, said = p.communicate(timeout=120)
    assert p.returncode == 130 and said.startswith("pyflame profile: interrupted; the report follows") and "slow_part" in report


def test_a_recording_without_steps_says_why(run, folder):
    """A step ends with an optimizer's step, which an inference loop has not."""
    (folder / "infer.py").write_text("import pyflame as pf\n\nfor _ in range(3):\n    pf.ones(8).sum().item()\n")
    said = run("profile", "--out", folder / "out", "--python", sys.executable, "--steps", 5, folder / "infer.py").stderr
    assert "no step was seen, so --skip and --steps left nothing out: a step ends with an optimizer's step, and none came; what is recorded begins with the program; hint: --seconds" in said


@pytest.mark.parametrize("skip, where", [(10, "begins with the program"), (4, "follows the last step")])
def test_a_program_of_few_steps(run, folder, skip, where):
    said = run("profile", "--out", folder / "out", "--python", sys.executable, "--skip", skip, folder / "train.py", 4, 0).stderr
    assert f"no step was recorded by itself: 4 ran until the recording ended, and --skip leaves out the first {skip}; what is recorded {where}; hint: --skip 2" in said


@pytest.mark.parametrize("command, sign", [("profile --out out --no-stacks", "\n== pyflame profile: ends.py ==\n"), ("explain", "\n== pyflame explain: ends.py ==\n"), ("debug run", "no access outside of a buffer was found")])
@pytest.mark.parametrize("forks", [False, True])
def test_a_program_that_ends_by_os_exit_is_reported(run, folder, command, sign, forks):
    (folder / "ends.py").write_text("import os, pyflame as pf\n" + "if (child := os.fork()) == 0:\n    os._exit(4)\nassert os.waitpid(child, 0)[1] == 4 << 8\n" * forks
                                    + "print(pf.ones(3).sum().item(), flush=True)\nos._exit(3)\n")  # fmt: skip
    r = run(*command.split(), "--python", sys.executable, "ends.py", code=3)
    assert r.stdout.startswith("3.0\n") and (r.stdout + r.stderr).count(sign) == 1


@pytest.mark.parametrize("command", ["profile", "explain", "tune", "optimize", "debug run", "run --nproc 1"])
def test_a_program_on_the_standard_input_is_refused(run, folder, command):
    said = run(*command.split(), "--python", sys.executable, "-", input="print('it ran')\n", code=None)
    assert said.returncode in (1, 2) and "a program is read from a file, not from the standard input" in said.stderr and "got -; expected" in said.stderr
    assert said.stderr.count("\n") == 1 and said.stdout == "" and [p.name for p in folder.iterdir()] == ["train.py"]


@pytest.mark.parametrize("text", ["def broken(:\n", "def step():\n    raise RuntimeError('the data is missing')\n\nstep()\n"], ids=["syntax", "raises"])
def test_the_traceback_of_a_program_is_that_of_python(folder, text):
    (folder / "fails.py").write_text(text)
    code = "import sys; from pyflame.profiler.run import run_program; sys.exit(run_program('fails.py', None, []))"
    ours = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    plain = subprocess.run([sys.executable, str(folder / "fails.py")], capture_output=True, text=True)
    assert ours.returncode == plain.returncode == 1
    assert ours.stderr.replace("Traceback (most recent call last):\n", "") == plain.stderr.replace(f"{folder}/", "").replace("Traceback (most recent call last):\n", "")
