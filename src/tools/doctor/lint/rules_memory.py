"""Rules about the GPU's memory."""
import ast
import re

from .names import STEPISH
from .registry import rule
from .values import text_of


@rule("LINT-12")
def free_without_others(lint, n):
    lint.report("LINT-12", n, f"{text_of(n)} counts the memory of this process only: memory that other processes, the driver and the HIP context use appears to be free",
                "ask the driver: free, total = torch.cuda.mem_get_info()")


@rule("ENV-65")
def cache_emptied_in_steps(lint, f, n):
    """empty_cache() in a loop over steps. It is right after an epoch or a model, and to recover when memory has run out."""
    if not f.loops or f.handling:
        return
    loop = f.loops[-1]
    counted = any(isinstance(b, ast.BinOp) and isinstance(b.op, ast.Mod) and STEPISH.search(text_of(b.left).split(".")[-1]) for c in f.conditions for b in ast.walk(c))
    if f.conditions and not counted:
        return  # an option, or a shortage, decides
    if counted or loop.step or loop.loader or isinstance(loop.node, (ast.For, ast.While)) and is_step_loop(loop.node):
        lint.report("ENV-65", n, "torch.cuda.empty_cache() in the step loop: it waits for the GPU and returns memory that the next step allocates again",
                    "delete it; if memory is fragmented, set PYTORCH_HIP_ALLOC_CONF before the program starts")


def is_step_loop(loop):
    """Whether the body of the loop, without inner loops, trains or runs a model."""
    todo = list(loop.body)
    while todo:
        n = todo.pop()
        if isinstance(n, (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            continue
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("backward", "step") and not isinstance(n.func.value, ast.Constant):
            if n.func.attr == "backward" or not re.search(r"sched", text_of(n.func.value), re.I):
                return True
        todo += list(ast.iter_child_nodes(n))
    return False
