"""`pyflame run --nproc N script.py`: starts one process for each rank, with the variables of torchrun, and ends all of them when one fails.

The launchers of several hosts meet in _rendezvous.py; _binding.py chooses the processors of each rank."""
import argparse
import collections
import ctypes
import os
import queue
import re
import secrets
import select
import signal
import subprocess
import sys
import threading
import time

from .._command_help import HelpFormatter, Parser, examples, program_of
from .._entry import end_in_order
from . import _binding, _state
from ._rendezvous import Gone, Rendezvous, free_port

_TAIL = 60  # lines of the failed rank that are shown again at the end
_WIDTH = 4096  # bytes of such a line
_PIECE = 1 << 16  # bytes of a line that are shown before its end is there
_PAUSE = 0.2  # seconds after which the part of a line that is there is shown
_PATIENCE = 5.0  # seconds between the request to end and the end
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def _parser():
    shown = examples(("pyflame run --nproc 2 train.py --epochs 3", "two processes on this host"),
                     ("pyflame run --nproc gpu train.py", "one process for each GPU"))
    p = Parser(prog="pyflame run", help_of="pyflame run --nproc 1", formatter_class=HelpFormatter, epilog=shown,
                                description="Starts the processes of a Python program, one for each rank, on this host or as one of several hosts.")
    p.add_argument("--nproc", "--nproc-per-node", "--nproc_per_node", default="1", help="processes on this host: a number, or 'gpu' for one on each GPU (default: 1)")
    p.add_argument("--nnodes", type=int, default=1, help="number of hosts; each of them runs this command (default: 1)")
    p.add_argument("--node-rank", "--node_rank", type=int, default=0, help="which of the hosts this is, from 0")
    p.add_argument("--rdzv", "--rdzv-endpoint", "--rdzv_endpoint", metavar="HOST:PORT", help="where the hosts meet: the address of host 0, and a free port there")
    p.add_argument("--rdzv-timeout", "--rdzv_timeout", type=float, default=600.0, metavar="SECONDS", help="how long a host waits for the others (default: 600)")
    p.add_argument("--rdzv-id", "--rdzv_id", default="", metavar="NAME", help="a name of the job; hosts that give another one are refused")
    p.add_argument("--master-addr", "--master_addr", help="address of rank 0 (default: 127.0.0.1); with several hosts, the host of --rdzv")
    p.add_argument("--master-port", "--master_port", type=int, help="port of rank 0 (default: a free one); with several hosts, the port of --rdzv")
    p.add_argument("--max-restarts", "--max_restarts", type=int, default=0, help="how often all processes are started again after one failed; RESTART_COUNT tells the program which time it is")
    p.add_argument("--threads", type=int, help="threads of each process (default: its processors, divided by the processes that share them)")
    p.add_argument("--bind", choices=("none", "cores", "numa"), help="processors of each process: all of them, cores of its own, or the NUMA node of its GPU; without GPUs its share of the nodes (default: numa where there are several processes)")
    p.add_argument("-m", "--module", action="store_true", help="the program is the name of a module")
    p.add_argument("--no-prefix", action="store_true", help="leave the output as it is, without [rank] before each line")
    p.add_argument("--python", default=sys.executable, help="the interpreter")
    p.add_argument("program", nargs=argparse.REMAINDER, metavar="script [argument ...]", help="the program, and its arguments")
    return p


def _gpus():
    from .. import _C

    return max(_C.rocm_device_count(), _C.cuda_device_count())


def _processes(parser, text):
    if text == "gpu":
        n = _gpus()
        if n == 0:
            parser.error("--nproc: there is no GPU; got gpu; expected a number")
        return n
    if not text.isdigit() or int(text) < 1:
        parser.error(f"--nproc: not a number of processes; got {text}; expected at least 1, or gpu")
    return int(text)


def _endpoint(parser, args):
    """(host, port) where several hosts meet; None for one host."""
    if args.nnodes == 1:
        return None
    if not args.rdzv:
        if not (args.master_addr and args.master_port):
            parser.error("--nnodes: the hosts do not know each other; expected --rdzv HOST:PORT with the address of host 0 and a free port there")
        return args.master_addr, args.master_port
    if args.master_addr or args.master_port:
        parser.error(f"--rdzv: there are two places to meet; got --rdzv {args.rdzv} with --master-addr or --master-port; expected one of both")
    host, _, port = args.rdzv.rpartition(":")
    if not host or not port.isdigit() or not 1 <= int(port) <= 65535:
        parser.error(f"--rdzv: not an address; got {args.rdzv}; expected HOST:PORT with a port from 1 to 65535")
    return host.strip("[]"), int(port)


def _first_in_child(processors):
    """What a new process does first: it asks to be killed when the launcher is gone, however that ended, and takes its processors."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # absent on some systems

    def first():
        if prctl:
            prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        os.sched_setaffinity(0, processors)

    return first


def _pieces(pipe):
    """What a pipe has: lines with their ends, a line feed or the carriage return of a progress bar. A long line, and one that does not go on for a moment, comes in several pieces."""
    rest = b""
    while True:
        if rest and not select.select([pipe], [], [], _PAUSE)[0]:
            yield rest
            rest = b""
        chunk = os.read(pipe.fileno(), _PIECE)
        if not chunk:
            break
        *lines, rest = re.split(rb"(?<=[\r\n])", rest + chunk)
        yield from lines
        if len(rest) >= _PIECE:
            yield rest
            rest = b""
    if rest:
        yield rest


class _Console:
    """The output of all ranks. Their lines do not mix, and a line that was begun by one rank is ended before the next one writes."""

    def __init__(self, prefix):
        self._prefix, self._lock, self._open = prefix, threading.Lock(), {}  # by stream: the rank whose line is not at its end

    def write(self, to, rank, piece, over):
        """Writes a piece of a line; over: it follows a carriage return."""
        with self._lock:
            before = b""
            if self._prefix:
                goes_on, last = self._open.get(to) == rank, self._open.get(to)
                begins = not goes_on and piece != b"\r" and not (over and piece == b"\n")
                before = b"\n" * (last is not None and not goes_on) + b"[%d] " % rank * begins
                self._open[to] = None if piece.endswith((b"\r", b"\n")) else rank
            _write(to, before + piece)

    def say(self, text):
        """A line of the launcher itself."""
        with self._lock:
            _write(sys.stderr, b"\n" * (self._open.pop(sys.stderr, None) is not None) + text.encode(errors="surrogateescape") + b"\n")


def _write(to, data):
    to.flush()
    to.buffer.write(data)
    to.buffer.flush()


class _Rank:
    """A process, and the thread that reads what it prints."""

    def __init__(self, rank, words, env, processors, console, ended):
        self.rank, self.tail = rank, collections.deque(maxlen=_TAIL)
        self.process = subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=_first_in_child(processors))
        self._console, self._ended = console, ended
        self._readers = [threading.Thread(target=self._read, args=(pipe, to, keep), daemon=True)
                         for pipe, to, keep in ((self.process.stdout, sys.stdout, False), (self.process.stderr, sys.stderr, True))]
        for t in self._readers:
            t.start()
        threading.Thread(target=self._wait, daemon=True).start()

    def _read(self, pipe, to, keep):
        lost, before = False, b""
        for piece in _pieces(pipe):
            over = before.endswith(b"\r")  # a progress bar, which is written over
            if keep:
                self._remember(piece, before, over)
            try:
                if not lost:  # otherwise read on, so that the process does not wait in print()
                    self._console.write(to, self.rank, piece, over)
            except OSError as e:
                lost = True
                self._ended.put((self, e))
            before = piece

    def _remember(self, piece, before, over):
        """Keeps the last lines. What is written over is gone, and a long line is cut."""
        if over and piece == b"\n":
            return
        goes_on = bool(before) and not before.endswith((b"\r", b"\n"))
        start = self.tail.pop() if (over or goes_on) and self.tail else b""
        text = piece.rstrip(b"\r\n")
        self.tail.append((start + text if goes_on else text)[:_WIDTH])

    def last_lines(self):
        return [line.decode(errors="replace") for line in list(self.tail)]

    def _wait(self):
        code = self.process.wait()
        self._ended.put((self, code))

    def read_all(self):
        """Waits until what the process printed is printed; a child of its own may keep the pipe open."""
        for t in self._readers:
            t.join(1.0)

    def blames_another(self):
        """Whether its last words are that another rank is gone."""
        last = next((line for line in reversed(self.last_lines()) if line.strip()), "")
        return self.process.returncode > 0 and _state.blames_another_rank(last)

    def signal(self, number):
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


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
    """The next (rank, exit code). Where nobody reads the output any longer, the job ends, as a program in a pipe does. Where other hosts are, the job may have ended there."""
    rank, code = ended.get(timeout=timeout)
    if rank is None:
        raise _Decided(code)
    if isinstance(code, BrokenPipeError):
        raise _NoReader
    if isinstance(code, OSError):
        raise _NoReader(f"pyflame run: the output cannot be written; got {code.strerror}; the processes were ended")
    return rank, code


class _NoReader(Exception):
    pass


class _Decided(Exception):
    """Host 0 knows how this start of the job ended: the argument is its outcome, or a Gone."""


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


def _environment(args, n, local, plan, restart, threads):
    """The variables of a rank: those of torchrun."""
    own = {"PYFLAME_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    env = {**os.environ, **own} if args.threads else {**own, **os.environ}
    env.update(RANK=str(plan["first"][args.node_rank] + local), LOCAL_RANK=str(local), WORLD_SIZE=str(plan["world"]), LOCAL_WORLD_SIZE=str(n), GROUP_RANK=str(args.node_rank), MASTER_ADDR=plan["address"],
               MASTER_PORT=str(plan["port"]), RESTART_COUNT=str(restart), TORCHELASTIC_RESTART_COUNT=str(restart), TORCHELASTIC_RUN_ID=plan["job"], TORCHELASTIC_USE_AGENT_STORE="False")
    return env


def _failure(args, meeting, rank, code):
    """What is said of a rank that failed."""
    where = f" on host {args.node_rank} ({os.uname().nodename})" if meeting else ""
    return {"who": f"rank {rank.rank}{where}", "what": f"failed with {_describe(code)}", "code": code if code > 0 else 128 - code, "tail": rank.last_lines(), "again": True, "blames": rank.blames_another()}


def _local_failure(args, n, meeting, ended):
    """Waits for the processes of this host; returns what failed, or None."""
    for left in range(n - 1, -1, -1):
        rank, code = _next(ended)
        rank.read_all()
        if code != 0:
            return _failure(args, meeting, *_cause(rank, code, ended, left))
    return None


def _once(args, n, console, meeting, restart):
    """Runs all processes; returns what failed (a dict) or None."""
    if meeting:
        plan = meeting.meet()
        restart = meeting.round
    else:
        plan = {"first": [0], "world": n, "address": args.master_addr or "127.0.0.1", "port": args.master_port or free_port("127.0.0.1"), "job": secrets.token_hex(8)}
    ended, ranks = queue.SimpleQueue(), []
    words = [args.python, "-u", *(["-m"] if args.module else []), args.script, *args.arguments]
    try:
        if meeting:
            meeting.watch(lambda outcome: ended.put((None, outcome)))
        for local, (processors, sharing) in enumerate(args.processors):
            env = _environment(args, n, local, plan, restart, args.threads or max(1, len(processors) // sharing))
            ranks.append(_Rank(plan["first"][args.node_rank] + local, words, env, processors, console, ended))
        failure = _local_failure(args, n, meeting, ended)
        if not meeting:
            return failure and {**failure, "again": restart < args.max_restarts}
        meeting.report(failure)
        _end(ranks)
        while True:
            _next(ended)  # raises what host 0 decided
    except _Decided as e:
        return _take(e.args[0])
    except (KeyboardInterrupt, SystemExit) as e:
        if meeting:
            _say_ended(args, meeting, ranks, e)
        raise
    finally:
        _end(ranks)
        for r in ranks:
            r.read_all()


def _take(outcome):
    if isinstance(outcome, Gone):
        raise outcome
    return outcome["failure"] and {**outcome["failure"], "again": outcome["again"]}


def _say_ended(args, meeting, ranks, e):
    """A launcher that is ended by its user ends the job, and the other hosts need not wait for it to come again."""
    number = e.code - 128 if isinstance(e, SystemExit) and isinstance(e.code, int) else signal.SIGINT
    try:
        meeting.report({"who": f"the launcher of host {args.node_rank} ({os.uname().nodename})", "what": f"was ended by {signal.Signals(number).name}", "code": 128 + number, "tail": [], "again": False, "blames": False})
        _end(ranks)
        meeting.end(again=False)
    except Gone:
        pass


def _job(args, n, console, endpoint):
    """Starts the processes, again after a failure; returns the exit code."""
    meeting = Rendezvous(*endpoint, args.nnodes, args.node_rank, n, args.max_restarts, args.rdzv_timeout, args.rdzv_id) if endpoint else None
    restart = 0
    while True:
        failure = _once(args, n, console, meeting, restart)
        again, restart = bool(failure and failure["again"]), meeting.round if meeting else restart
        if failure:
            console.say(f"pyflame run: {failure['who']} {failure['what']}; the others were ended" + (f"; start {restart + 2} of {args.max_restarts + 1}" if again else ""))
        if failure and not again and failure["tail"]:
            console.say(f"pyflame run: the last lines of {failure['who']}:\n" + "\n".join("  " + line for line in failure["tail"]))
        if meeting:
            meeting.end(again)
        if not again:
            return failure["code"] if failure else 0
        restart += 1


def _checked(parser, args):
    for option, value, most in (("--nnodes", args.nnodes, None), ("--master-port", args.master_port, 65535), ("--threads", args.threads, None)):
        if value is not None and (value < 1 or most and value > most):
            parser.error(f"{option}: out of range; got {value}; expected at least 1" + (f" and at most {most}" if most else ""))
    if not 0 <= args.node_rank < args.nnodes:
        parser.error(f"--node-rank: out of range; got {args.node_rank}; expected 0 to {args.nnodes - 1}")
    if args.max_restarts < 0:
        parser.error(f"--max-restarts: below 0; got {args.max_restarts}; expected 0 or more")
    if not args.rdzv_timeout > 0:
        parser.error(f"--rdzv-timeout: out of range; got {args.rdzv_timeout:g}; expected more than 0")
    endpoint = _endpoint(parser, args)
    if args.script == "-":
        parser.error("a program is read from a file, not from the standard input, which one process alone could read; got -; expected the file of a Python program")
    if not args.module and not os.path.exists(args.script):
        parser.error(f"there is no such program; got {args.script}; expected the file of a Python program; hint: -m for a module")
    if args.module and args.arguments[:1] == ["--"]:  # behind the file of a program it belongs to the program
        del args.arguments[0]
    return endpoint


def main(words=None):
    parser = _parser()
    args = parser.parse_args(words)
    args.script, *args.arguments = program_of(args) or parser.error("there is no program; got no file and no module; expected the file of a Python program; hint: -m for a module")
    n = _processes(parser, args.nproc)
    endpoint, console = _checked(parser, args), _Console(not args.no_prefix)
    try:
        args.processors = _binding.processors(args.bind or ("numa" if n > 1 else "none"), n, _binding.Machine(), _gpus)
    except ValueError as e:
        parser.error(str(e))
    end_in_order()
    try:
        return _job(args, n, console, endpoint)
    except Gone as e:
        console.say(str(e))
        return 1
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
