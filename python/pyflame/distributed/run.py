"""`pyflame run --nproc N script.py`: starts one process for each rank, with the variables of torchrun, and ends all of them when one fails."""
import argparse
import collections
import ctypes
import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time

from . import _state

_TAIL = 60  # lines of the failed rank that are shown again at the end
_PATIENCE = 5.0  # seconds between the request to end and the end
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def _parser():
    p = argparse.ArgumentParser(prog="pyflame run", description="Starts the processes of a Python program, one for each rank, on this host or as one of several hosts.")
    p.add_argument("--nproc", "--nproc-per-node", "--nproc_per_node", default="1", help="processes on this host: a number, or 'gpu' for one on each GPU (default: 1)")
    p.add_argument("--nnodes", type=int, default=1, help="number of hosts; each of them runs this command (default: 1)")
    p.add_argument("--node-rank", "--node_rank", type=int, default=0, help="which of the hosts this is, from 0")
    p.add_argument("--master-addr", "--master_addr", help="address of host 0 (default: 127.0.0.1)")
    p.add_argument("--master-port", "--master_port", type=int, help="port on host 0 (default: a free one)")
    p.add_argument("--max-restarts", "--max_restarts", type=int, default=0, help="how often all processes are started again after one failed; RESTART_COUNT tells the program which time it is")
    p.add_argument("--threads", type=int, help="threads of each process (default: the processors divided by the processes)")
    p.add_argument("-m", "--module", action="store_true", help="the program is the name of a module")
    p.add_argument("--no-prefix", action="store_true", help="leave the output as it is, without [rank] before each line")
    p.add_argument("--python", default=sys.executable, help="the interpreter")
    p.add_argument("script", help="the program")
    p.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return p


def _processes(parser, text):
    if text == "gpu":
        from .. import _C

        n = max(_C.rocm_device_count(), _C.cuda_device_count())
        if n == 0:
            parser.error("--nproc: there is no GPU; got gpu; expected a number")
        return n
    if not text.isdigit() or int(text) < 1:
        parser.error(f"--nproc: not a number of processes; got {text}; expected at least 1, or gpu")
    return int(text)


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _end_with_launcher():
    """What a new process does first, or None where the system has no such call: it asks to be killed when the launcher is gone, however that ended."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    return (lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))) if prctl else None


def _lines(pipe):
    """The lines of a pipe, each as soon as it is there, with the end that it has: a line feed, or the carriage return of a progress bar."""
    rest = b""
    for chunk in iter(lambda: pipe.read1(1 << 16), b""):
        *lines, rest = re.split(rb"(?<=[\r\n])", rest + chunk)
        for line in lines:
            yield line.decode(errors="replace")
    if rest:
        yield rest.decode(errors="replace")


class _Rank:
    """A process, and the thread that reads what it prints."""

    def __init__(self, rank, words, env, prefix, ended):
        self.rank, self.tail = rank, collections.deque(maxlen=_TAIL)
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=_end_with_launcher())
        self._prefix, self._ended = prefix, ended
        self._readers = [threading.Thread(target=self._read, args=(pipe, to, keep), daemon=True)
                         for pipe, to, keep in ((self.process.stdout, sys.stdout, False), (self.process.stderr, sys.stderr, True))]
        for t in self._readers:
            t.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def _read(self, pipe, to, keep):
        lost, before = False, ""
        for line in _lines(pipe):
            over = before.endswith("\r")  # a progress bar, which is written over
            if keep and not (over and line == "\n"):
                if over and self.tail:
                    self.tail.pop()
                self.tail.append(line.rstrip("\r\n"))
            try:
                if not lost:  # otherwise read on, so that the process does not wait in print()
                    with _printing:
                        to.write(f"[{self.rank}] " * (self._prefix and not (line == "\r" or over and line == "\n")) + line)
                        to.flush()
            except OSError as e:
                lost = True
                self._ended.put((self, e))
            before = line

    def _wait(self):
        code = self.process.wait()
        self._ended.put((self, code))

    def read_all(self):
        """Waits until what the process printed is printed; a child of its own may keep the pipe open."""
        for t in self._readers:
            t.join(1.0)

    def blames_another(self):
        """Whether its last words are that another rank is gone."""
        last = next((line for line in reversed(self.tail) if line.strip()), "")
        return self.process.returncode > 0 and _state.blames_another_rank(last)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


_printing = threading.Lock()


def _end(ranks):
    for r in ranks:
        if r.process.poll() is None:
            r.signal(signal.SIGTERM)
    until = time.monotonic() + _PATIENCE
    try:
        for r in ranks:
            try:
                r.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                pass
    finally:  # also after another Ctrl-C
        for r in ranks:
            r.signal(signal.SIGKILL)  # and what it started
            r.process.wait()


def _next(ended, timeout=None):
    """The next (rank, exit code). Where nobody reads the output any longer, the job ends, as a program in a pipe does."""
    rank, code = ended.get(timeout=timeout)
    if isinstance(code, BrokenPipeError):
        raise _NoReader
    if isinstance(code, OSError):
        raise _NoReader(f"pyflame run: the output cannot be written; got {code.strerror}; the processes were ended")
    return rank, code


class _NoReader(Exception):
    pass


def _cause(rank, code, ended, left):
    """The rank that failed by itself. One whose error is that another rank is gone may end before that one has ended."""
    first, until = (rank, code), time.monotonic() + _PATIENCE
    while rank.blames_another() and left:
        try:
            rank, code = _next(ended, max(0.0, until - time.monotonic()))
        except queue.Empty:
            return first
        left -= 1
        rank.read_all()
        if code != 0 and not rank.blames_another():
            return rank, code
    return first


def _describe(code):
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"signal {-code}"


def _once(args, n, restart):
    """Runs all processes; returns (the rank that failed first or None, its exit code)."""
    address, port = args.master_addr or "127.0.0.1", args.master_port or _free_port()
    world = n * args.nnodes
    threads = args.threads or max(1, len(os.sched_getaffinity(0)) // n)
    ended, ranks = queue.SimpleQueue(), []
    job = secrets.token_hex(8) if args.nnodes == 1 else "none"  # as torchrun says it
    words = [args.python, "-u", *(["-m"] if args.module else []), args.script, *args.arguments]
    try:
        for local in range(n):
            own = {"PYFLAME_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
            env = {**os.environ, **own} if args.threads else {**own, **os.environ}
            env.update(RANK=str(args.node_rank * n + local), LOCAL_RANK=str(local), WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(n), GROUP_RANK=str(args.node_rank),
                       MASTER_ADDR=address, MASTER_PORT=str(port), RESTART_COUNT=str(restart), TORCHELASTIC_RESTART_COUNT=str(restart), TORCHELASTIC_RUN_ID=job)
            ranks.append(_Rank(args.node_rank * n + local, words, env, not args.no_prefix, ended))
        for left in range(n - 1, -1, -1):
            rank, code = _next(ended)
            rank.read_all()
            if code != 0:
                return _cause(rank, code, ended, left)
        return None, 0
    finally:
        _end(ranks)
        for r in ranks:
            r.read_all()


def main(words=None):
    parser = _parser()
    args = parser.parse_args(words)
    n = _processes(parser, args.nproc)
    if args.nnodes > 1 and not (args.master_addr and args.master_port):
        parser.error("--nnodes: the hosts do not know each other; expected --master-addr and --master-port of host 0")
    for option, value, most in (("--nnodes", args.nnodes, None), ("--master-port", args.master_port, 65535), ("--threads", args.threads, None)):
        if value is not None and (value < 1 or most and value > most):
            parser.error(f"{option}: out of range; got {value}; expected at least 1" + (f" and at most {most}" if most else ""))
    if not 0 <= args.node_rank < args.nnodes:
        parser.error(f"--node-rank: out of range; got {args.node_rank}; expected 0 to {args.nnodes - 1}")
    if args.max_restarts < 0:
        parser.error(f"--max-restarts: below 0; got {args.max_restarts}; expected 0 or more")
    if not args.module and not os.path.exists(args.script):
        parser.error(f"there is no such program; got {args.script}; expected the file of a Python program; hint: -m for a module")
    for number in (signal.SIGTERM, signal.SIGHUP):  # SIGHUP: the terminal is closed, unless nohup asked to go on
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))
    try:
        for restart in range(args.max_restarts + 1):
            rank, code = _once(args, n, restart)
            if rank is None:
                return 0
            again = restart < args.max_restarts
            print(f"pyflame run: rank {rank.rank} failed with {_describe(code)}; the others were ended" + (f"; start {restart + 2} of {args.max_restarts + 1}" if again else ""), file=sys.stderr)
        if rank.tail:
            print(f"pyflame run: the last lines of rank {rank.rank}:", file=sys.stderr)
            print("\n".join("  " + line for line in rank.tail), file=sys.stderr)
        return code if code > 0 else 128 - code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except _NoReader as e:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # Python flushes once more at its end
        if not e.args:
            return 128 + signal.SIGPIPE
        print(e, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
