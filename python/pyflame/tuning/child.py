"""Runs a program as `python FILE` does, and writes how long its steps take, for the process that tunes or optimizes it.

A step ends with an optimizer's step; in a program without one, with a call of a module that no other module called. The host may be many steps ahead of the device,
so times are those of blocks of steps: at the end of a block the program waits for the device. The first block says how many steps the later ones need. The first steps are in no block, and a block in
which something was compiled does not count."""
import argparse
import math
import sys
import threading
import time

from .._command_help import Parser, program_of
from ..profiler.run import run_program

SKIPPED = 5  # steps before the first block; values that are kept are computed apart from the third run of a program on
BLOCK = 0.05  # seconds that a block should take
FIRST, MOST = 4, 1000  # steps of a block
OBSERVED = 3  # outputs of a module that are recorded; fewer than SKIPPED
FEWEST = 8  # steps; with fewer, the program is timed as a whole


LOOK = 0.2  # seconds between two looks whether the program computes


class Steps:
    """Writes `step` at the end of each step and `block SECONDS_A_STEP` at the end of each block."""

    def __init__(self, say, synchronize, clock=time.perf_counter, compiled=lambda: 0):
        """compiled: how many programs were compiled so far."""
        self._say, self._synchronize, self._clock, self._compiled = say, synchronize, clock, compiled
        self._disturbed, self._programs = [], 0
        self._kind, self._count, self._since, self._start, self._blocks, self._length = None, 0, 0, None, [], FIRST

    def end_of(self, kind):
        """kind: 'optimizer' or 'call'. From the first optimizer's step on, calls do not count."""
        if kind != self._kind:
            if self._kind == "optimizer":
                return
            self._kind, self._count, self._start, self._blocks, self._disturbed = kind, 0, None, [], []
        self._count += 1
        self._say("step", self._clock())
        if self._start is None:
            if self._count >= SKIPPED:
                self._begin()
            return
        self._since += 1
        if self._since >= self._length or self._clock() - self._start >= BLOCK:
            self._end_block()

    def _begin(self):
        self._synchronize()
        self._start, self._since, self._programs = self._clock(), 0, self._compiled()

    def _end_block(self):
        self._synchronize()
        undisturbed = self._compiled() == self._programs
        seconds = (self._clock() - self._start) / self._since
        (self._blocks if undisturbed else self._disturbed).append(seconds)
        self._length = min(MOST, math.ceil(BLOCK / max(seconds, 1e-9)))
        self._begin()

    def finish(self):
        """The device is done. Writes the blocks, if the program has enough steps."""
        if self._since and (not self._blocks or 2 * self._since >= self._length):
            self._end_block()
        if self._count >= FEWEST:
            for seconds in self._blocks or self._disturbed:
                self._say("block", seconds)


def say_when_it_computes(say, compiled):
    """Writes `computes` when the program's first ops are compiled; what comes before (imports, data) may take any time. compiled: how many programs were compiled so far."""

    def watch():
        while not compiled():
            time.sleep(LOOK)
        say("computes", time.perf_counter())

    threading.Thread(target=watch, name="pyflame-tuning", daemon=True).start()


def main():
    p = Parser(prog="python -m pyflame.tuning.child", add_help=False)
    p.add_argument("--report", required=True)
    p.add_argument("--observe")
    p.add_argument("--plan", action="store_true")
    p.add_argument("--all-algorithms", action="store_true")
    p.add_argument("--module")
    p.add_argument("program", nargs=argparse.REMAINDER)
    args = p.parse_args()
    program = program_of(args)
    file, arguments = (None, program) if args.module else (program[0], program[1:])
    import pyflame as pf

    pf._C._set_tune_all_algorithms(args.all_algorithms)
    report = open(args.report, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 - open until the process ends

    def say(word, value):
        report.write(f"{word} {value}\n")

    def compiled():
        return pf.program_cache_stats()["misses"]

    steps, observer = Steps(say, pf.synchronize, compiled=compiled), None
    if args.observe:
        from ..optimizing.observe import Observer

        observer = Observer(args.observe, steps, args.plan)
    pf.optim.optimizer.register_optimizer_step_post_hook(lambda *_: steps.end_of("optimizer"))
    _count_calls(pf, steps, observer)
    say("start", time.perf_counter())
    say_when_it_computes(say, compiled)
    code = run_program(file, args.module, arguments)
    if code == 0:
        pf.synchronize()
        steps.finish()
        say("end", time.perf_counter())
        say("programs", compiled())
        if observer:
            observer.finish()
    return code


def _count_calls(pf, steps, observer):
    """Calls of the first module that is called by the program itself. Hooks of all modules, which are slow, are there until it is found."""
    depth, handles, outputs, before = [0], [], [], []

    def capture(module, args, kwargs):
        if observer.called(module, args, kwargs):
            before.pop().remove()

    def after(output):
        if observer and len(outputs) < OBSERVED:
            outputs.append(True)
            observer.output(output)  # before the end of the step, so that it is in no block
        steps.end_of("call")

    def enter(*_):
        depth[0] += 1

    def leave(module, _, output):
        depth[0] -= 1
        if depth[0] == 0:
            for handle in handles:
                handle.remove()
            module.register_forward_hook(lambda module, _, output: after(output))
            if observer:
                before.append(module.register_forward_pre_hook(capture, with_kwargs=True))
            after(output)

    handles += [pf.nn.hooks.register_module_forward_pre_hook(enter), pf.nn.hooks.register_module_forward_hook(leave, always_call=True)]


if __name__ == "__main__":
    sys.exit(main())
