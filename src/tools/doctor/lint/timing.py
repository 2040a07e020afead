"""Parts of a program whose time is measured."""
import ast
import re

from .names import STEPISH
from .rules_timing import clock_without_wait, constant_operands, first_runs_are_timed, timeit_without_wait
from .values import V


LAUNCHISH = re.compile(r"launch|overhead|enqueue|dispatch|host|cpu", re.I)


def first_left_out(conditions, counters):
    """Whether one of the conditions is about the number of the iteration."""
    names = [x.id for c in conditions for x in ast.walk(c) if isinstance(x, ast.Name)]
    return any(name in counters or STEPISH.search(name) for name in names)


def skips(loop):
    """The conditions under which the body of a loop goes on to the next iteration."""
    return [n.test for n in getattr(loop, "body", []) if isinstance(n, ast.If) and n.body and isinstance(n.body[-1], ast.Continue)]


class Timing:
    """Finds what a measured time consists of; part of Lint."""

    def waited(self, trace, last, end):
        """Whether the program waits for the launch at `last` before `end`; a wait in each iteration of its loop is enough."""
        loops = trace[last].loops
        for e in trace[last + 1:end]:
            if e.kind == "wait":
                return True
        if loops:
            return any(e.kind == "wait" and e.loops[:len(loops)] == loops for e in trace[:last])
        return False

    def whole_task(self, f, entry):
        """A call of main() or of another function without arguments at the top of the program: its time is that of the whole task."""
        n = entry.node
        named = isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
        return f is self.module and named and (not n.args and not n.keywords or "main" in n.func.id.lower())

    def elapsed(self, f, n, end, start):
        if end.trace is not f.trace or start.trace is not f.trace or end.at <= start.at:
            return V("elapsed")
        f.timed = True
        region = range(start.at + 1, end.at)
        launches = [i for i in region if f.trace[i].kind == "launch"]
        shared = f.trace[start.at].loops
        if launches:
            last = launches[-1]
            inner = f.trace[last].loops
            waits = any(f.trace[i].kind == "wait" for i in range(last + 1, end.at))
            # a wait in the same iteration of a loop inside the region
            waits = waits or len(inner) > len(shared) and any(f.trace[i].kind == "wait" and f.trace[i].loops[:len(inner)] == inner for i in region)
            # Who times a launch by its name wants the time of the launch.
            meant = LAUNCHISH.search(getattr(f.node, "name", ""))
            if not waits and not meant and not self.whole_task(f, f.trace[last]):
                clock_without_wait(self, f.trace, last, end.at)
        return self.timed(f, n, start.at, end.at, f.trace[start.at].node)

    def timed(self, f, n, start, end, node):
        """Checks a part of the program whose time is measured: LINT-02 and LINT-03."""
        f.timed = True
        region = f.trace[start + 1:end]
        constant_operands(self, region)
        value = V("elapsed", trace=f.trace, at=start, node=node, count=end)
        shared = len(f.trace[start].loops)
        launches = [e for e in region if e.kind == "launch" and e.deep]
        if not launches or any(e.key in ("backward", "step") for e in region):
            return value
        inside = [e for e in launches if len(e.loops) > shared]
        if inside:
            if all(loop.ranged for e in inside for loop in e.loops[shared:]) and not any(loop.loader for loop in f.trace[start].loops):
                first_runs_are_timed(self, f, start, node, inside, "the average")
        elif f is self.module and not f.loops and not f.trace[start].loops and not any(self.whole_task(f, e) for e in launches):
            first_runs_are_timed(self, f, start, node, launches, "the time")
        return value

    def collected(self, f, value, n):
        """The times of the iterations of a loop are put in a list or a sum. The first iteration is among them."""
        if value.trace is not f.trace or value.at is None:
            return
        loops = f.trace[value.at].loops
        if not loops or not loops[-1].ranged or loops[-1].trains:
            return
        target = n.func.value if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) else getattr(n, "target", None)
        counters = {x.id for x in ast.walk(getattr(loops[-1].node, "target", ast.Pass())) if isinstance(x, ast.Name)}
        if isinstance(target, ast.Name) and target.id in self.sliced or first_left_out(f.conditions + skips(loops[-1].node), counters):
            return  # the first iterations are left out
        launches = [e for e in f.trace[value.at + 1:value.count] if e.kind == "launch" and e.deep]
        if launches and not any(e.key in ("backward", "step") for e in launches):
            first_runs_are_timed(self, f, value.at, value.node, launches, "the times")

    def timeit(self, f, n, name, function):
        if function.kind != "def":
            return V("elapsed")
        inner = self.follow(function.node, function.base, None, None)
        constant_operands(self, inner.trace)
        timeit_without_wait(self, n, name, inner)
        return V("elapsed")
