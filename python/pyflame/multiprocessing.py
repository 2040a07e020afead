"""Python's multiprocessing under PyTorch's name. Tensors are copied from process to process."""
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing import *  # noqa: F401,F403
from multiprocessing import Pipe as Pipe, get_context as get_context, parent_process as parent_process, set_start_method as set_start_method
from multiprocessing.connection import wait as _wait

_PATIENCE = 5.0  # seconds between the request to end and the end
_MOST_TEXT = 30000  # characters of a traceback; a pipe takes them before anybody reads


class ProcessException(Exception):
    """The base of the errors of spawn(): a process failed. msg: the text. error_index: which of the processes, from 0. error_pid: its process id."""

    def __init__(self, message, error_index, pid):
        super().__init__(message)
        self.msg, self.error_index, self.error_pid = message, error_index, pid


class ProcessRaisedException(ProcessException):
    """An exception left the function of a process of spawn(). The message ends with the traceback of that process. The fields are those of ProcessException.
    """


class ProcessExitedException(ProcessException):
    """A process ended with exit_code, or by the signal signal_name.

    message: the text of the error. error_index: which of the processes, from 0. error_pid: its process id. signal_name: such as 'SIGKILL', or None.
    """

    def __init__(self, message, error_index, error_pid, exit_code, signal_name=None):
        super().__init__(message, error_index, error_pid)
        self.exit_code, self.signal_name = exit_code, signal_name


def _end_with(parent):
    parent.join()  # returns at its end, however that came
    os.kill(os.getpid(), signal.SIGKILL)


def _run(fn, number, args, environment, says):
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()
    os.environ.clear()  # the forkserver has that of the first start
    os.environ.update(environment)
    try:
        fn(number, *args)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except Exception:
        says.send(traceback.format_exc()[-_MOST_TEXT:])
        sys.exit(1)


class SpawnContext:
    """The processes that spawn(join=False) started. join() waits for them and raises what one of them raised; pids() returns their ids."""

    def __init__(self, processes, hears):
        self.processes, self._hears, self._said = processes, hears, {}

    def pids(self):
        """The ids of the processes in the operating system, a list of int in the order of their numbers."""
        return [p.pid for p in self.processes]

    def _failed(self, i):
        return self.processes[i].exitcode not in (None, 0)

    def _says(self, i):
        """The traceback of a process that has ended, or None."""
        if i not in self._said:
            try:
                self._said[i] = self._hears[i].recv() if self._hears[i].poll() else None
            except EOFError:
                self._said[i] = None
        return self._said[i]

    def _blames_another(self, i):
        from .distributed import _state

        text = self._says(i) or ""
        return _state.blames_another_rank(text)

    def _end(self):
        for p in self.processes:
            if p.exitcode is None:
                p.terminate()
        until = time.monotonic() + _PATIENCE
        for p in self.processes:
            p.join(max(0.0, until - time.monotonic()))
            if p.exitcode is None:
                p.kill()
                p.join()

    def join(self, timeout=None):
        """Waits until a process ends, or for `timeout` seconds; whether all have ended. When one failed, ends the others and raises what it said."""
        _wait([p.sentinel for p in self.processes if p.exitcode is None], timeout)
        failed = [i for i in range(len(self.processes)) if self._failed(i)]
        if not failed:
            return all(p.exitcode is not None for p in self.processes)
        until = time.monotonic() + _PATIENCE
        while all(map(self._blames_another, failed)) and any(p.exitcode is None for p in self.processes) and time.monotonic() < until:
            _wait([p.sentinel for p in self.processes if p.exitcode is None], max(0.0, until - time.monotonic()))  # the one that failed by itself ends soon
            failed = [i for i in range(len(self.processes)) if self._failed(i)]
        i = next((i for i in failed if not self._blames_another(i)), failed[0])
        p, text, code = self.processes[i], self._says(i), self.processes[i].exitcode
        self._end()
        if text:
            raise ProcessRaisedException(f"spawn: process {i} raised; the others were ended\n\n{text}", i, p.pid)
        name = signal.Signals(-code).name if code < 0 and -code in set(signal.Signals) else None
        raise ProcessExitedException(f"spawn: process {i} ended with {f'signal {name}' if name else f'exit code {code}'}; the others were ended", i, p.pid, code, name)


ProcessContext = SpawnContext


def spawn(fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """Calls fn(i, *args) in nprocs new processes, i from 0, and waits for them.

    fn and args are pickled, so fn is a function of a module or of the program, which needs `if __name__ == "__main__":`. join=False: returns a
    SpawnContext at once. daemon: as of multiprocessing.Process: True ends them at the end of this process, which otherwise waits for them; they can start
    no processes then. start_method: 'spawn' and 'forkserver' (both: a new process without anything of this one) or 'fork'. When a process fails, the
    others are ended; ProcessRaisedException has its traceback, ProcessExitedException its exit code.
    """
    if isinstance(nprocs, bool) or not isinstance(nprocs, int) or nprocs < 1:
        raise ValueError(f"spawn: nprocs is not a number of processes; got {nprocs!r}; expected at least 1")
    methods = {"spawn": "forkserver", "forkserver": "forkserver", "fork": "fork"}
    if start_method not in methods:
        raise ValueError(f"spawn: start_method is not available; got {start_method!r}; expected one of {', '.join(methods)}")
    context = get_context(methods[start_method])  # a child of the forkserver finds `import torch` as this process does
    processes, hears = [], []
    made = SpawnContext(processes, hears)
    try:
        for i in range(nprocs):
            hear, say = Pipe(duplex=False)
            hears.append(hear)
            p = context.Process(target=_run, args=(fn, i, tuple(args), dict(os.environ), say), daemon=daemon)
            p.start()
            processes.append(p)
            say.close()
        if not join:
            return made
        while not made.join():
            pass
        return None
    except BaseException:
        made._end()
        raise


start_processes = spawn


def set_sharing_strategy(new_strategy):
    """Does nothing and accepts any new_strategy: tensors are copied from process to process, so no memory is shared.

    Returns None, and raises nothing.
    """


def get_sharing_strategy():
    """Always 'file_descriptor', the name of PyTorch's default. Tensors are copied all the same."""
    return "file_descriptor"


def get_all_sharing_strategies():
    """The set {'file_descriptor'}. There is nothing to choose, as tensors are copied from process to process."""
    return {"file_descriptor"}
