"""Processes that this package starts for itself: the ranks of tensor parallelism and the replicas of a server.

A child runs `python -m MODULE`. Messages are pickled objects in two pipes; only the two processes have them. A child ends when its parent is gone, however that ended:
reading from the pipe ends then, and a thread of the child looks each second who its parent is, which also helps where a fork of the parent keeps the pipe open.
Children have sessions of their own, so Ctrl-C in a terminal reaches the parent alone, which ends them."""
import collections
import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection

_LINES = 20  # of a child's output that an error shows
# What launchers set for their own processes. A child belongs to none of their jobs.
_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT")


class Child:
    """A process of `python -m module`. name: what errors and its lines on standard error call it; ended(child): called on a thread of its own when it has ended without close();
    threads: those that it computes with on a CPU, unless PYFLAME_NUM_THREADS says it."""

    def __init__(self, module, name, ended=lambda child: None, threads=None):
        self.name, self.is_quiet, self.tail, self._closing, self._ended = name, True, collections.deque(maxlen=_LINES), False, ended
        down, self._send_end = os.pipe()
        self._receive_end, up = os.pipe()
        environment = {k: v for k, v in os.environ.items() if k not in _LAUNCHERS}
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) for p in sys.path)
        environment["PYTHONSAFEPATH"] = "1"  # the folder that the program was started in is searched only if the program's own path has it
        if threads is not None:
            environment.setdefault("PYFLAME_NUM_THREADS", str(threads))
        try:
            self.process = subprocess.Popen([sys.executable, "-m", module, str(os.getpid()), str(up)], stdin=down, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, pass_fds=(up,), env=environment, start_new_session=True)
        except BaseException:
            for end in (self._send_end, self._receive_end):
                os.close(end)
            raise
        finally:
            os.close(down)
            os.close(up)
        self._to, self._from, self._sending = Connection(self._send_end, readable=False), Connection(self._receive_end, writable=False), threading.Lock()
        self._reader = threading.Thread(target=self._read, name=f"pyflame {name} output", daemon=True)
        self._reader.start()
        threading.Thread(target=self._wait, name=f"pyflame {name} end", daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            text = line.decode(errors="replace").rstrip("\n")
            self.tail.append(text)
            if not self.is_quiet:
                try:
                    print(f"[{self.name}] {text}", file=sys.stderr, flush=True)
                except (OSError, ValueError):  # nobody reads it any longer; the child goes on
                    self.is_quiet = True

    def _wait(self):
        self.process.wait()
        self._reader.join(1.0)
        if not self._closing:
            self._ended(self)

    def send(self, *message):
        """Sends a message. OSError where the child has ended."""
        with self._sending:
            self._to.send(message)

    def receive(self):
        """The next message of the child. EOFError where it has ended."""
        try:
            return self._from.recv()
        except OSError:
            raise EOFError from None

    def has_ended(self):
        return self.process.poll() is not None

    def words(self):
        """How it ended, with the end of its output."""
        self._reader.join(1.0)
        code = self.process.poll()
        how = "runs" if code is None else f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code} ({signal.Signals(-code).name})"
        lines = [line for line in self.tail if line.strip()]
        return f"{self.name} {how}" + ("; its last lines:\n  " + "\n  ".join(lines) if lines else "; it has printed nothing")

    def close(self, patience):
        """Ends it: it reads the end of its pipe, and after `patience` seconds it is killed."""
        self._closing = True
        if self._sending.acquire(timeout=1.0):
            self._to.close()
            self._sending.release()
        else:  # it does not read; whoever sends hears of its end
            self.process.kill()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def close_all(children, patience):
    """Ends several children at the same time."""
    threads = [threading.Thread(target=c.close, args=(patience,)) for c in children]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def connected(words):
    """In a child: (Connection of messages to it, Connection of its own). words: its arguments."""
    parent, up = map(int, words)
    incoming = os.dup(0)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.set_inheritable(up, False)

    def watch():
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, name="pyflame parent", daemon=True).start()
    return Connection(incoming, writable=False), Connection(up, readable=False)
