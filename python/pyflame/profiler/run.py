"""Runs a program as `python FILE` does, and records its steps. A step ends with an optimizer's step."""
import atexit
import contextlib
import functools
import importlib.util
import os
import re
import runpy
import sys
import threading
import time
import traceback

from .._entry import READER_LEFT, reader_left

_TORCH = re.compile(r"^\s*(import|from)\s+torch\b", re.MULTILINE)
_PYFLAME = re.compile(r"^\s*(import|from)\s+pyflame\b", re.MULTILINE)


def framework_of(path):
    """'torch' if the program imports PyTorch and not PyFlame, otherwise 'pyflame'."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return "pyflame"
    return "torch" if _TORCH.search(text) and not _PYFLAME.search(text) else "pyflame"


class NoProgram(Exception):
    """Why there is no program to run, as a sentence."""


def find_program(args, here=True):
    """(file, module, arguments) of a command line, the first or the second of them None. here: the program runs in this process, so that the packages around a module are imported; in
    another one, Python says itself that there is no such module. NoProgram."""
    if args.module:
        if here:
            sys.path.insert(0, os.getcwd())
            try:
                spec = None if args.module.startswith(".") else importlib.util.find_spec(args.module)
            except (ModuleNotFoundError, ValueError):  # of a package that is not there; of a name that ends with a dot
                spec = None
            if spec is None:
                raise NoProgram(f"there is no such module; got {args.module!r}; expected a module that Python finds from this folder")
        return None, args.module, args.program
    file, *arguments = args.program
    if file == "-":
        raise NoProgram("a program is read from a file, not from the standard input; got -; expected FILE.py, or -m MODULE; hint: cat > program.py writes the standard input to a file")
    if not os.path.isfile(file):
        raise NoProgram(f"there is no such file; got {file!r}; expected a Python program")
    return file, None, arguments


def misplaced(args, file, arguments):
    """A sentence about options of a command that stand behind the file, where they belong to the program, although its text has nothing of them; or None."""
    names = {"--" + name.replace("_", "-") for name in vars(args)} - {"--program", "--pyflame"}
    given = [word.partition("=")[0] for word in arguments if word.partition("=")[0] in names]
    if file is None or not given:
        return None
    with open(file, encoding="utf-8", errors="replace") as source:
        text = source.read()
    if "argv" in text or any(word.lstrip("-") in text or word.lstrip("-").replace("-", "_") in text for word in given):
        return None
    return f"the program gets what stands behind its file, whose text has nothing of this option; got {given[0]} behind {file}; hint: options of this command stand before the file"


class PyFlameRecorder:
    """Records with pf.profiler."""

    def __init__(self, stacks):
        import pyflame as pf

        from . import ceilings
        from .machine import MachineSampler

        self._pf, self._stacks, self._MachineSampler, self._ceilings = pf, stacks, MachineSampler, ceilings
        self._profile = self._machine = None

    def on_step(self, hook):
        self._pf.optim.optimizer.register_optimizer_step_post_hook(lambda *_: hook())

    def begin(self, step):
        pf = self._pf
        devices = [f"rocm:{i}" for i in range(pf.rocm_device_count())] + [f"cuda:{i}" for i in range(pf.cuda_device_count())]
        self._machine = self._MachineSampler(devices or ["cpu"]).start()
        self._profile = self._pf.profiler.profile(with_stack=self._stacks)
        self._profile._first_step = step
        self._profile.start()

    def step(self):
        self._profile.step()

    def end(self, path):
        """Writes the trace, or throws the recording away if there is no path. Returns what is worth saying of the machine."""
        profile, self._profile = self._profile, None
        profile.stop()
        self._machine.stop()
        if path is None:
            return []
        limits = self._limits(profile)
        further = self._ceilings.trace_events(limits) if limits and limits.gbs else []
        profile.export_chrome_trace(path, counters=lambda start: [*self._machine.counters(start), *further])
        unknown = ["there is no roofline: the ceilings of the CPU are not known, and nothing is measured while the program runs; hint: pyflame explain --measure FILE"] if limits and not limits.gbs else []
        dropped = [f"{profile.dropped} events were left out, because there were more than are kept"] if profile.dropped else []
        return self._machine.summary() + unknown + dropped


    def _limits(self, profile):
        """The ceilings of the CPU; None if a GPU worked. They are measured while the program waits, at most once a process, and not in the thread that ends a recording beside it."""
        beside = isinstance(threading.current_thread(), threading.Timer)
        return self._ceilings.of_recording(profile.key_averages(group_by_input_shape=True), measure=not beside)


class TorchRecorder:
    """Records with torch.profiler, for programs of PyTorch."""

    def __init__(self, stacks):
        import torch

        self._torch, self._profile = torch, None
        # With stacks, the profiler of PyTorch 1 fails at the end of a recording that began in another function.
        self._stacks, self._without = stacks, stacks and torch.__version__.startswith("1.")

    def on_step(self, hook):
        """A hook of PyTorch's optimizers runs within their record_function. If one recording ends there and the next begins, PyTorch crashes at the end of the process,
        so the hook is called after the step."""
        from torch.optim.optimizer import Optimizer

        def ends_step(step):
            @functools.wraps(step)
            def stepped(*args, **kwargs):
                result = step(*args, **kwargs)
                hook()
                return result

            return stepped

        if hasattr(Optimizer, "profile_hook_step"):
            with_record = Optimizer.profile_hook_step
            Optimizer.profile_hook_step = staticmethod(lambda step: ends_step(with_record(step)))
            return

        prepare = Optimizer._hook_for_profile  # PyTorch 1: puts the record around the step of each class, at its first optimizer

        def prepare_class(optimizer):
            prepare(optimizer)
            kind = type(optimizer)
            if not getattr(kind.step, "ends_step", False):
                kind.step = ends_step(kind.step)
                kind.step.ends_step = True

        Optimizer._hook_for_profile = prepare_class

    def begin(self, step):
        profiler = self._torch.profiler
        activities = [profiler.ProfilerActivity.CPU] + ([profiler.ProfilerActivity.CUDA] if self._torch.cuda.is_available() else [])
        self._profile = profiler.profile(activities=activities, record_shapes=True, with_stack=self._stacks and not self._without)
        self._profile.step_num = step
        self._profile.start()

    def step(self):
        self._profile.step()

    def end(self, path):
        profile, self._profile = self._profile, None
        profile.stop()
        if path is not None:
            profile.export_chrome_trace(path)
        return ["stacks were not recorded: the profiler of PyTorch 1 fails with them; hint: PyTorch 2 records them"] if self._without else []


class Session:
    """Which steps are recorded: after `skip` steps, `steps` of them (0: all that follow) for at most `seconds`. report(lines) is called when the trace
    is written, which is before the program ends if it goes on. Where it cannot be written, `failure` is the error: the program goes on."""

    def __init__(self, recorder, trace, skip, steps, seconds, report):
        self._recorder, self._trace, self._skip, self._steps, self._seconds, self._report = recorder, trace, skip, steps, seconds, report
        self._lock = threading.RLock()
        self._seen = self.recorded = 0
        self._recording = self._done = False
        self._timer = self.failure = None
        self._process = os.getpid()

    def start(self):
        self._recorder.on_step(self._on_step)
        self._begin()

    def _begin(self):
        self._recorder.begin(self._seen)  # the steps' numbers say how many ran before
        self._recording = True
        self._timer = threading.Timer(self._seconds, self.finish)
        self._timer.daemon = True
        self._timer.name = "pyflame-profile-timer"
        self._timer.start()

    def _on_step(self):
        if os.getpid() != self._process:  # the recording is that of the process that forked this one
            return
        with self._lock:
            if self._done or threading.current_thread() is self._timer:
                return
            self._seen += 1
            if self._seen < self._skip:
                return
            if self._seen == self._skip:  # what was recorded so far compiled and allocated
                self._timer.cancel()
                self._recorder.end(None)
                self._begin()
                return
            self.recorded += 1
            if self._steps and self.recorded == self._steps:
                self.finish()
            else:
                self._recorder.step()

    def finish(self):
        """Ends the recording, if it has not ended. Any thread may call."""
        with self._lock:
            if self._done or not self._recording:
                return
            self._done = True
            self._timer.cancel()
            try:
                lines = self._recorder.end(self._trace)
            except OSError as e:
                self.failure = e
            else:
                self._report([*lines, *self._missing_steps()])

    def _missing_steps(self):
        """Why no step, or none of those that were asked for, is in the recording."""
        if self._seen == 0:
            return ["no step was seen, so --skip and --steps left nothing out: a step ends with an optimizer's step, and none came; what is recorded begins with the program; "
                    "hint: --seconds bounds the recording; pf.profiler.profile() in the program records a region, and its step() ends steps of your own"]  # fmt: skip
        if self.recorded == 0:
            where = "begins with the program" if self._seen < self._skip else "follows the last step"
            return [f"no step was recorded by itself: {self._seen} ran until the recording ended, and --skip leaves out the first {self._skip}; what is recorded {where}; hint: --skip {self._seen // 2}"]
        return []


@contextlib.contextmanager
def _arguments(argv, path):
    before, before_path = sys.argv, sys.path[:]
    sys.argv = argv
    sys.path[0:0] = [path]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before, before_path


def run_program(file, module, arguments):
    """Runs it in this process as `__main__`. Returns its exit code; prints the traceback of what it raises. A process that the program made by os.fork() ends
    here as it would in Python, because what follows is the work of the process that was started."""
    own = os.getpid()
    code = _exit_code(file, module, arguments)
    if os.getpid() != own:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # nobody reads it, or it is closed
                stream.flush()
        os._exit(code)
    return code


def run_and_report(file, module, arguments, report):
    """Runs it, and returns what report(its exit code) does. A program that ends this process by os._exit() is reported there, before it ends."""
    own, end_now = os.getpid(), os._exit

    def end(status):
        if os.getpid() == own:  # a forked process ends as it does in Python
            os._exit = end_now
            try:
                status = report(status)
            except BaseException:  # nothing catches it behind os._exit()
                traceback.print_exc()
                status = status or 1
            for stream in (sys.__stdout__, sys.__stderr__):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()
        end_now(status)

    os._exit = end
    try:
        code = run_program(file, module, arguments)
    finally:
        os._exit = end_now
    return report(code)


def _exit_code(file, module, arguments):
    name = module or file
    try:
        with _arguments([name, *arguments], os.getcwd() if module else os.path.dirname(os.path.abspath(file))):
            if module:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(file, run_name="__main__")
    except SystemExit as e:
        if isinstance(e.code, str):
            print(e.code, file=sys.stderr)
        return e.code if isinstance(e.code, int) else 0 if e.code is None else 1
    except KeyboardInterrupt:
        return 130
    except BaseException as e:
        if isinstance(e, BrokenPipeError) and reader_left():
            return READER_LEFT
        traceback.print_exception(type(e), e, _frames_of_the_program(e.__traceback__))
        return 1
    return 0


@contextlib.contextmanager
def as_program(file):
    """Within the context, the program's arguments are its name alone, as if it ran without any."""
    arguments, sys.argv = sys.argv, [file]
    try:
        yield
    finally:
        sys.argv = arguments


def import_program(file):
    """The program as a module, so that what stands under `if __name__ == "__main__"` does not run. It has no arguments. ImportError where it fails or ends within the import; the
    traceback of what it raises is printed."""
    import pathlib

    spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(file)))  # stays, for what its functions import
    try:
        with as_program(file):
            spec.loader.exec_module(module)
    except SystemExit as e:
        raise ImportError(f"the program ended while it was imported; got {file}, which called sys.exit({e.code!r}); expected only what its functions need; "
                          "hint: put what it does as a program, such as its arguments, below `if __name__ == '__main__':`") from None  # fmt: skip
    except Exception as e:
        traceback.print_exception(type(e), e, _frames_of_the_program(e.__traceback__))
        raise ImportError(f"the program failed while it was imported; got {type(e).__name__} in {file}; expected only what its functions need; "
                          "hint: put what it does as a program below `if __name__ == '__main__':`") from None  # fmt: skip
    return module


def _frames_of_the_program(frames):
    """A traceback without the first frames, which are those of this file and of the import: as Python shows it for a program that it runs itself."""
    ours = (__file__, runpy.__file__, "<frozen runpy>", "<frozen importlib")
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(ours):
        frames = frames.tb_next
    return frames


def stamp():
    return time.strftime("%Y%m%d-%H%M%S")
