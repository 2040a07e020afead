"""The debug allocator and `pyflame debug run`: kernels that really access memory that is not theirs are named with their op and line."""
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

import pyflame as pf
from pyflame._debug import vendor
from pyflame.testing.inject import misbehaving

DEVICES = [os.environ.get("PYFLAME_TEST_DEVICE", "cpu")]


@pytest.fixture(params=DEVICES)
def device(request):
    with pf.device(request.param):
        yield request.param


@pytest.fixture
def debugged(device):
    """The debug allocator, wholly on."""
    before = pf._C._debug_memory()
    pf.synchronize()
    pf.memory.configure(guards=True, poison=True)
    yield device
    pf.synchronize()
    pf._C._configure_debug_memory(*before)


def error_of(op, how, offset=0, count=4, x=None):
    """The error of one misbehaving run of `op`."""
    x = pf.randn(100) if x is None else x
    pf.synchronize()
    with misbehaving(op, how, offset=offset, count=count) as injected:
        y = x.exp()
        with pytest.raises(RuntimeError) as e:
            y.tolist()
    assert injected.runs >= 1
    return str(e.value)


def test_a_write_behind_the_end_names_everything(debugged):
    text = error_of("exp", "writes", offset=400, count=8)
    assert "exp: wrote outside of a buffer; got 8 bytes changed 0 bytes behind the end of a buffer of 400 bytes, the result float32(100,) of exp" in text
    assert "in step 1 of 1" in text and "while running exp(float32(100,))" in text and "recorded at test_debugging.py:" in text and "in error_of" in text
    assert "the buffer was taken for test_debugging.py:" in text


def test_a_write_far_behind_the_end(debugged):
    assert "got 4 bytes changed 60 bytes behind the end" in error_of("exp", "writes", offset=460)


def test_a_write_before_the_start(debugged):
    assert "got 4 bytes changed, the nearest 1 byte before the start of a buffer of 400 bytes" in error_of("exp", "writes", offset=-4)


def test_what_was_computed_before_is_intact_and_the_program_goes_on(debugged):
    x = pf.randn(100)
    before = x.tolist()
    error_of("exp", "writes", offset=400, x=x)
    assert x.tolist() == before and np.allclose(x.exp().tolist(), np.exp(before), rtol=1e-5)


@pytest.mark.skipif(DEVICES != ["cpu"], reason="guard pages are of the host; a GPU's bands show writes")
def test_a_read_behind_the_end_is_found_at_the_access(debugged):
    text = error_of("exp", "reads", offset=448, count=1)  # 400 bytes end 48 bytes before their guard page
    assert "exp: read outside of a buffer; got an access 48 bytes behind the end of a buffer of 400 bytes" in text or "exp: accessed outside" in text


@pytest.mark.skipif(os.environ.get("PYFLAME_WINDOW") == "1", reason="in windows of one op, the kernel of an op in place has another result; debug_memory_test.cpp has the case")
@pytest.mark.skipif(DEVICES != ["cpu"], reason="the host's freed blocks are closed; those of a GPU are filled")
def test_an_access_to_freed_memory(debugged):
    x, gone = pf.randn(100), pf.randn(1000)
    pf.synchronize()
    distance = pf._C._storage_of(gone)[0] - pf._C._storage_of(x)[0]
    del gone
    with misbehaving("neg", "writes", offset=distance):
        x.neg_()  # in place, so that the address is known before
        with pytest.raises(RuntimeError, match="neg: (wrote|accessed) freed memory; got .* byte 0 of what was a buffer of 4000 bytes"):
            x.tolist()


def test_a_kernel_that_writes_nothing(debugged):
    text = error_of("exp", "skips")
    assert "read: memory that nothing has written was read; got 100 such values in float32(100,)" in text
    assert "first seen in the result float32(100,) of exp, which did not write all of it" in text and "recorded at test_debugging.py:" in text


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64", "int16", "uint8"])
def test_memory_that_nothing_has_written(debugged, dtype):
    with pytest.raises(RuntimeError, match="memory that nothing has written was read; got 16 such values.*\n  no op has written them"):
        pf.empty(16, dtype=getattr(pf, dtype)).tolist()


def test_uninitialised_values_name_the_op_where_they_were_used(debugged):
    x = pf.empty(10)
    y = x * 2
    pf.synchronize()
    with pytest.raises(RuntimeError, match="whose input float32\\(10,\\) holds memory that nothing has written; step 1 of 1\n  while running mul"):
        y.sum().item()


def test_memory_that_was_written_in_part(debugged):
    x = pf.empty(10)
    x[2:4] = 1
    assert x[2:4].tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="got 1 such values in float32\\(3,\\)"):
        x[1:4].tolist()
    x.fill_(3)
    assert x.tolist() == [3] * 10


def test_nan_of_the_program_is_no_finding(debugged):
    x = pf.tensor([float("nan"), 1.0])
    assert np.isnan((x * 2).tolist()[0]) and np.isnan((pf.zeros(2) / 0).tolist()).all()


def test_a_training_step_is_sound_and_the_same(debugged):
    def losses():
        pf.manual_seed(0)
        net = pf.nn.Sequential(pf.nn.Conv2d(3, 4, 3), pf.nn.ReLU(), pf.nn.Flatten(), pf.nn.Linear(4 * 36, 5))
        adam, x, y = pf.optim.Adam(net.parameters()), pf.randn(2, 3, 8, 8), pf.tensor([1, 3])
        found = []
        for _ in range(3):
            adam.zero_grad()
            loss = pf.nn.functional.cross_entropy(net(x), y)
            loss.backward()
            adam.step()
            found.append(loss.item())
        return found

    with_guards = losses()
    pf.memory.configure(guards=False, poison=False)
    assert with_guards == losses()


def test_memory_taken_before_and_after_is_freed_as_it_was_taken(device):
    before = pf._C._debug_memory()
    x = pf.ones(1000)
    pf.synchronize()
    try:
        pf.memory.configure(guards=True)
        y = x + 1
        assert y.sum().item() == 2000
        held = pf.memory.stats()["allocated"]
        del x
        z = y * 2
        pf.synchronize()
        assert pf.memory.stats()["allocated"] <= held + 8192
    finally:
        pf._C._configure_debug_memory(*before)
    del y
    assert z.sum().item() == 4000


def test_configure_refuses():
    with pytest.raises(TypeError, match="configure: guards is not a bool; got 1; expected True or False"):
        pf.memory.configure(guards=1)
    with pytest.raises(TypeError, match="configure: poison is not a bool"):
        pf.memory.configure(poison="yes")
    with pytest.raises(ValueError, match="configure: guards and poison are of all devices; got device='cpu'"):
        pf.memory.configure(guards=True, device="cpu")


# ---- the command


def debug(tmp_path, text, *words, name="program.py", **environment):
    (tmp_path / name).write_text(text)
    r = subprocess.run([sys.executable, "-m", "pyflame._debug", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    return r.returncode, r.stdout, r.stderr


WRONG = """import sys
import pyflame as pf
from pyflame.testing.inject import misbehaving
x = pf.randn(64)
with misbehaving('tanh', 'writes', offset=256):
    y = x.tanh()
    print(y.sum().item(), sys.argv[1:])
"""


def test_command_names_the_first_wrong_access(tmp_path):
    code, out, err = debug(tmp_path, WRONG, "--guards", "--", "program.py")
    assert code == 4 and "the first wrong access:\ntanh: wrote outside of a buffer; got 4 bytes changed 0 bytes behind the end of a buffer of 256 bytes" in err
    assert "recorded at program.py:6" in err


def test_command_names_an_access_whose_error_the_program_caught(tmp_path):
    code, out, err = debug(tmp_path, WRONG.replace("    print(", "    try:\n        print(").replace("sys.argv[1:])\n", "sys.argv[1:])\n    except RuntimeError:\n        pass\n"), "--", "program.py")
    assert code == 4 and "Traceback" not in err and "the first wrong access:\ntanh: wrote" in err


def test_command_on_a_sound_program(tmp_path):
    code, out, err = debug(tmp_path, "import sys\nimport pyflame as pf\nprint(pf.ones(3).sum().item(), sys.argv[1:])\nsys.exit(7)\n", "--", "program.py", "--epochs", "1")
    assert code == 7 and out == "3.0 ['--epochs', '1']\n" and "no access outside of a buffer was found; no read of memory that nothing has written was found" in err
    code, out, err = debug(tmp_path, "", "--poison", "--", "program.py")
    assert code == 0 and "no access outside" not in err and "no read of memory" in err
    code, out, err = debug(tmp_path, "", "--sync", "--", "program.py")
    assert code == 0 and "the program came to its end, step by step" in err


@pytest.mark.parametrize("before", ["", "import faulthandler\nfaulthandler.enable()\n"])
def test_a_signal_that_a_process_sends_ends_the_program(tmp_path, before):
    code, out, err = debug(tmp_path, before + "import os\nimport signal\nimport pyflame as pf\npf.ones(3).sum().item()\nos.kill(os.getpid(), signal.SIGSEGV)\nprint('it goes on')\n", "--", "program.py")
    assert code == -signal.SIGSEGV and out == "" and "was found" not in err and "access to memory" not in err


def test_command_finds_a_read_of_uninitialised_memory(tmp_path):
    code, out, err = debug(tmp_path, "import pyflame as pf\nx = pf.empty(5)\ny = x + 1\nprint(y.tolist())\n", "--module=program", "--")
    assert code == 4 and "the first wrong access:\nread: memory that nothing has written was read; got 5 such values" in err and "recorded at program.py:3" in err


def test_command_writes_a_document(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text("import os\n" + WRONG + "os.chdir('/')\n")
    r = run("debug", "run", "--guards", "--json", "found.json", "program.py", "--epochs", "1", code=4)
    document = json.loads((tmp_path / "found.json").read_text())
    assert document.pop("first_wrong_access").startswith("tanh: wrote outside of a buffer; got 4 bytes changed")
    assert document == {"tool": "debug run", "program": "program.py", "arguments": ["--epochs", "1"], "looked_for": ["guards"], "exit_code": 4}
    assert "first wrong access" in r.stderr
    code, out, err = debug(tmp_path, "import sys\nprint(sys.argv)\nsys.exit(7)\n", "--json=sound.json", "--module=program", "--", "x")
    document = json.loads((tmp_path / "sound.json").read_text())
    assert code == 7 and document == {"tool": "debug run", "program": "program", "arguments": ["x"], "looked_for": ["guards", "poison"], "first_wrong_access": None, "exit_code": 7}


def test_command_refuses_a_document_in_no_folder(tmp_path):
    code, out, err = debug(tmp_path, "print('it ran')\n", "--json=none/found.json", "--", "program.py")
    assert code == 1 and out == "" and "the folder of --json does not exist; got " in err and "expected a path in a folder that exists" in err


def test_command_refuses(tmp_path):
    code, out, err = debug(tmp_path, "", "--", "missing.py")
    assert code == 1 and "there is no such file; got 'missing.py'" in err
    code, out, err = debug(tmp_path, "", "--module=no.such.module", "--")
    assert code == 1 and "there is no such module; got 'no.such.module'" in err


@pytest.mark.skipif(os.path.exists("/usr/local/cuda/bin/compute-sanitizer"), reason="compute-sanitizer is where it is looked for")
def test_command_refuses_a_sanitizer_that_is_not_there(tmp_path):
    code, out, err = debug(tmp_path, "", "--sanitizer=memcheck", "--", "program.py", PATH=str(tmp_path), CUDA_HOME=str(tmp_path), CUDA_PATH=str(tmp_path))
    assert code == 1 and "compute-sanitizer is not installed" in err


# ---- the vendors' tools


def test_the_debug_agent_is_loaded_where_it_is(tmp_path):
    (tmp_path / "lib").mkdir()
    agent = tmp_path / "lib" / vendor.AGENT
    agent.touch()
    environment = {"ROCM_PATH": str(tmp_path)}
    loaded, text = vendor.load_agent(environment)
    assert loaded and environment["HSA_TOOLS_LIB"] == str(agent) and environment["HSA_ENABLE_DEBUG"] == "1" and str(agent) in text
    environment = {"ROCM_PATH": str(tmp_path), "HSA_TOOLS_LIB": "libother.so", "HSA_ENABLE_DEBUG": "0"}
    assert vendor.load_agent(environment)[0] and environment["HSA_TOOLS_LIB"] == f"libother.so {agent}" and environment["HSA_ENABLE_DEBUG"] == "0"
    environment = {"HSA_TOOLS_LIB": "/mine/librocm-debug-agent.so.2"}
    assert vendor.load_agent(environment)[0] and environment["HSA_TOOLS_LIB"] == "/mine/librocm-debug-agent.so.2"


def test_without_the_debug_agent_it_says_where_it_is_from(monkeypatch):
    monkeypatch.setattr(vendor, "find_agent", lambda environment: None)
    environment = {}
    loaded, text = vendor.load_agent(environment)
    assert not loaded and environment == {} and "package rocm-debug-agent" in text


def test_the_program_gets_the_agent(tmp_path):
    (tmp_path / "lib").mkdir()
    agent = tmp_path / "lib" / vendor.AGENT
    agent.touch()
    text = "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.getenv.restype = ctypes.c_char_p\nprint(libc.getenv(b'HSA_TOOLS_LIB').decode())\n"  # as ROCm reads it
    code, out, err = debug(tmp_path, text, "--", "program.py", ROCM_PATH=str(tmp_path), HSA_TOOLS_LIB="")
    assert code == 0 and out.strip() == str(agent) and "AMD's debug agent is loaded with the GPU" in err
    code, out, err = debug(tmp_path, "import os\nprint(os.environ.get('HSA_TOOLS_LIB') or 'none')\n", "--no-agent", "--", "program.py", ROCM_PATH=str(tmp_path), HSA_TOOLS_LIB="")
    assert code == 0 and out.strip() == "none"


def test_the_sanitizer_starts_the_program(tmp_path, monkeypatch):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:])\n")
    tool.chmod(0o755)
    code, out, err = debug(tmp_path, "", "--guards", "--sanitizer=memcheck", "--", "program.py", "--epochs=1", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert code == 0, err
    assert "'--tool=memcheck', '--error-exitcode=4'" in out and "'-m', 'pyflame._debug', '--guards', '--', 'program.py', '--epochs=1'" in out
    assert vendor.find_sanitizer({"PATH": str(tmp_path)}) == str(tool)
    monkeypatch.setattr(vendor, "find_sanitizer", lambda environment: None)
    with pytest.raises(ValueError, match="compute-sanitizer is not installed; it is part of the CUDA toolkit"):
        vendor.sanitizer_command("memcheck", [])
