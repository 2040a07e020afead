"""Rules about measured times."""
import ast

from .registry import rule
from .values import UNKNOWN, plural


@rule("LINT-01")
def clock_without_wait(lint, trace, last, end):
    """The entry `end` reads the clock, and the work that `last` gave to the GPU has not been waited for."""
    what = trace[last].node
    lint.report("LINT-01", trace[end].node, f"the clock is read without waiting for the GPU: line {what.lineno} ({trace[last].key.replace('gemm ', '')}) only queues its work, so the time of queueing is measured",
                "call torch.cuda.synchronize() before both readings of the clock, or use a pair of torch.cuda.Event(enable_timing=True)")


@rule("LINT-01")
def timeit_without_wait(lint, n, name, inner):
    """`inner` is what the timed function does."""
    if name.startswith("timeit") and inner.launches and not inner.waits:
        lint.report("LINT-01", n, f"{name} times a call that gives work to the GPU and does not wait for it",
                    "use torch.utils.benchmark.Timer, which waits, or end the timed call with torch.cuda.synchronize()")


@rule("LINT-02")
def first_runs_are_timed(lint, f, start, node, launches, what):
    """`what` is the time of `launches`, taken from the entry `start` on: runs before it warm them up."""
    keys = {e.key for e in launches}
    loops = f.trace[start].loops
    runs, named = 0, False
    for e in f.trace[:start]:
        turns = 1
        for loop in e.loops:
            if loop not in loops:
                turns *= 1 << 20 if loop.count is None else loop.count
        if e.key in keys and e.kind == "launch":
            runs += turns
        named |= e.kind in ("call", "launch") and "warm" in e.key.lower() and turns > 0
    if not runs and not named:
        for x in ast.walk(f.node) if not isinstance(f.node, ast.Module) else ():
            name = x.id if isinstance(x, ast.Name) else x.attr if isinstance(x, ast.Attribute) else x.arg if isinstance(x, ast.keyword) else ""
            named |= "warm" in (name or "").lower() and isinstance(getattr(x, "ctx", ast.Load()), ast.Load) and not isinstance(f.names.get(name or "", UNKNOWN).const, int)
    # The first replay of a graph compiles nothing: the graph was captured from kernels that had run.
    if named or runs >= 3 or all(e.key.endswith(".replay") for e in launches):
        return
    key = launches[0].key.replace("gemm ", "")
    runs_text = "nothing ran before" if runs == 0 else f"only {plural(runs, 'run')} before"
    lint.report("LINT-02", node, f"{what} of {key} includes its first runs ({runs_text}): on AMD GPUs these load code objects, tune and compile",
                "run it at least 3 times first (10 or more for kernels of microseconds), wait, then start the clock", warm=runs > 0)


@rule("LINT-03")
def constant_operands(lint, entries):
    """Products with matrices of zeros or ones are timed."""
    for e in entries:
        if e.kind == "launch" and e.key.startswith("gemm "):
            inits = [o.init for o in e.operands if o.init]
            if inits:
                lint.report("LINT-03", e.node, f"a matrix product with an operand of {inits[0]} is timed: the multipliers hardly switch, so the clock stays higher than with real numbers (up to 20 %)",
                            "fill the operands with torch.randn (or the data of your model)")
