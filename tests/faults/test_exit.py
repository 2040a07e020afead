"""The end of a process that has used a GPU, while kernels are still being compiled in the background. The emulated compiler is strict
(tests/support/emulator/hiprtc.cpp): it aborts the process when its exit handlers run while a thread is inside of it."""
import pathlib
import signal
import subprocess

import pytest

# A loop is run by its own kernel or by the interpreting one, whichever is compiled first. Here the interpreting kernel is slow, and the program
# goes on when its compilation has begun.
FIRST = """
import time
x = pf.ones(3, device='rocm')
print((x + 1).tolist(), flush=True)
while not os.path.exists(os.environ['BEGUN']):
    time.sleep(0.001)
"""
RESULT = "[2.0, 2.0, 2.0]"
COMPILERS = pytest.mark.parametrize("seconds", [1, 100000], ids=["slow", "hangs"])
LIMIT = 120  # seconds; a process that hangs fails here


def slow(tmp_path, seconds, wait=None):
    """The environment of a program with a slow compiler."""
    begun = str(tmp_path / "begun")
    wait = wait or ("0.2" if seconds > LIMIT else "100")
    return {"PYFLAME_EMULATOR_SLOW_COMPILE": f"struct Interpreted {{:{seconds}:{begun}", "BEGUN": begun, "PYFLAME_EXIT_PROGRAM_WAITS_FOR": begun,
            "PYFLAME_EXIT_WAIT": wait, "PYFLAME_INTERPRET": "1"}


# How a program ends, and with which exit code.
ENDINGS = {
    "at once": ("", 0),
    "by sys.exit": ("sys.exit(3)", 3),
    "by an exception": ("raise ValueError('on purpose')", 1),
    "by sys.exit in a thread": ("import threading\nt = threading.Thread(target=sys.exit)\nt.start(); t.join()", 0),
    "with a thread that computes": ("import threading\nthreading.Thread(target=lambda: (x * 3 - 1).exp().tolist(), daemon=True).start()", 0),
    "by os._exit": ("os._exit(4)", 4),
    "with work in an exit handler": ("import atexit\natexit.register(lambda: print((x * 2 + 5).tolist()))", 0),
    "after the device was lost": ("try:\n    (x * 2).tolist()\nexcept pf.DeviceError:\n    print('it was lost')", 0),
}


def ended(process):
    """Exit code and all output."""
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"it did not end within {LIMIT} s: {process.communicate()}")
    return process.returncode, out, err


@COMPILERS
@pytest.mark.parametrize("how", ENDINGS)
def test_a_program_ends(program, tmp_path, how, seconds):
    text, code = ENDINGS[how]
    more = {"PYFLAME_EMULATOR_FAIL": "lost:2"} if "lost" in how else {}
    result, out, err = ended(program.start(FIRST + text, **slow(tmp_path, seconds), **more))
    assert result == code, f"exit code {result}\n{out}\n{err}"
    assert RESULT in out
    assert "emulator: hiprtc" not in err
    if "lost" in how:
        assert "was lost" in out


def test_a_slow_compiler_is_waited_for_and_its_kernel_kept(program, tmp_path):
    result, out, err = ended(program.start(FIRST, **slow(tmp_path, 2)))
    assert result == 0, f"exit code {result}\n{out}\n{err}"
    assert len(program.kernels()) == 2
    assert "PYFLAME_EXIT_WAIT" in err


def test_a_compiler_that_hangs_is_left(program, tmp_path):
    result, out, err = ended(program.start(FIRST, **slow(tmp_path, 100000)))
    assert (result, len(program.kernels())) == (0, 1), f"{out}\n{err}"


@COMPILERS
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(program, tmp_path, which, seconds):
    process = program.start(FIRST + "print('begun', flush=True)\ntime.sleep(1000)", **slow(tmp_path, seconds))
    assert process.stdout.readline().strip() == RESULT
    assert process.stdout.readline().strip() == "begun"
    process.send_signal(which)
    result, out, err = ended(process)
    assert result == -which, f"exit code {result}\n{out}\n{err}"
    assert "emulator: hiprtc" not in err


def test_control_c_ends_the_waiting(program, tmp_path):
    process = program.start(FIRST, **slow(tmp_path, 100000, wait="1000"))
    assert process.stdout.readline().strip() == RESULT
    assert "PYFLAME_EXIT_WAIT" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    result, out, err = ended(process)
    assert result == 0, f"exit code {result}\n{out}\n{err}"


@COMPILERS
def test_a_child_of_fork_ends(program, tmp_path, seconds):
    """The child has a copy of the compiler's library in the middle of a call, and no thread that would finish it."""
    result, out, err = ended(program.start(FIRST + """
pid = os.fork()
if pid == 0:
    print((on_cpu + 1).tolist(), flush=True)
    sys.exit(5)
_, status = os.waitpid(pid, 0)
assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 5, status
""", **slow(tmp_path, seconds)))
    assert result == 0, f"exit code {result}\n{out}\n{err}"
    assert "[1.0, 2.0, 3.0, 4.0]" in out


@pytest.mark.parametrize("window", ["1", "64"])
@pytest.mark.parametrize("interpret", ["0", "1"])
def test_a_bad_limit_is_refused_whenever_work_begins(program, window, interpret):
    program.run("""
x = on_cpu.to('rocm').reshape(2, 2)
uses = [lambda: (x + 1).tolist(), lambda: pf.softmax(x, 1).tolist(), lambda: (x @ x).sum().item(), lambda: x.argmax().item(), lambda: pf.zeros(3, device='rocm').add_(1).tolist(),
        lambda: (x * 2, pf.synchronize())]
for use in uses * 2:
    assert 'PYFLAME_EXIT_WAIT' in refused(ValueError, use)
""", PYFLAME_EXIT_WAIT="soon", PYFLAME_WINDOW=window, PYFLAME_INTERPRET=interpret)


@COMPILERS
@pytest.mark.parametrize("how,code", [("return", 0), ("exit", 7), ("exit-in-thread", 8), ("static", 0), ("quick_exit", 9)])
def test_a_program_in_cpp_ends(program, tmp_path, how, code, seconds):
    binary = pathlib.Path(program.libraries).parent / "bin" / "pyflame_exit_program"
    process = subprocess.Popen([binary, "rocm", how], env=program.environment(**slow(tmp_path, seconds)), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    result, out, err = ended(process)
    assert result == code, f"exit code {result}\n{out}\n{err}"
    assert "tensor([2., 2., 2.]" in out
    assert "emulator: hiprtc" not in err
