"""Follows a program: its state, its findings, and the events of the run."""
import ast
import re

from .calls import Calls
from .expressions import Expressions
from .names import LOADERISH, STEPISH
from .rules_settings import set_too_late
from .rules_training import backward_without_gradients, scaler_with_bfloat16
from .statements import Statements
from .timing import Timing
from .torch_calls import TorchCalls
from .values import Entry, Frame, Loop, UNKNOWN, V, sentence, text_of

ROBUST = {"median", "median_low", "min", "sorted", "sort", "percentile", "nanpercentile", "quantile", "quantiles"}
IGNORE = re.compile(r"#.*\bpyflame:\s*ignore\b[ :]*([A-Z0-9, -]*)")


def is_aside(path):
    """Whether the file is a test or a benchmark, whose preparations and comparisons take no time that matters."""
    *folders, name = path.replace("\\", "/").split("/")
    return re.match(r"(test|bench)|.*(_test|_bench|benchmark)", name) is not None or bool(folders) and re.fullmatch(r"(op_|unit_)?tests?|bench\w*", folders[-1]) is not None


class Lint(Statements, Expressions, Calls, TorchCalls, Timing):
    """One program, followed once. The rules see it through this object."""

    def __init__(self, tree, lines, path=""):
        self.lines = lines
        self.aside = is_aside(path)
        self.findings, self.env, self.seen = [], [], set()
        self.problems = []
        self.summaries, self.walking = {}, []
        self.scalers, self.autocasts, self.sides = [], [], []
        # the line at which each of these first happened in the order of the run; 0: before this file
        self.moments = {"import": None, "gpu": None, "launch": None, "compile": None, "group": None}
        self.grad_off = None
        self.bound = set()
        self.on_gpu = False
        self.wide = set()
        self.sliced = set()  # lists of which a part is taken, or the median, or the least: their first entries do not count
        for n in ast.walk(tree):
            self.survey(n)
        if "torch" not in self.bound:
            if any(isinstance(n, ast.Name) and n.id == "torch" for n in ast.walk(tree)):
                self.moments["import"] = 0  # a fragment of a program that has it
        self.module = Frame(tree, {})
        self.tree = tree

    def survey(self, n):
        if isinstance(n, (ast.Import, ast.ImportFrom)):
            self.bound.update((a.asname or a.name.split(".")[0]) for a in n.names)
        elif isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load):
            self.bound.add(n.id)
        elif isinstance(n, ast.arg):
            self.bound.add(n.arg)
        elif isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.bound.add(n.name)
        elif isinstance(n, ast.Constant) and isinstance(n.value, str):
            self.on_gpu |= re.match(r"(cuda|hip)(:\d+)?$", n.value) is not None
        elif isinstance(n, ast.Attribute):
            self.on_gpu |= n.attr == "cuda"
        elif isinstance(n, ast.Call) and (n.func.attr if isinstance(n.func, ast.Attribute) else getattr(n.func, "id", "")) in ROBUST:
            self.sliced.update(a.id for a in [*n.args, getattr(n.func, "value", None)] if isinstance(a, ast.Name))
        elif isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Slice) and isinstance(n.value, ast.Name) and n.slice.lower:
            self.sliced.add(n.value.id)
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "set_default_device":
            self.on_gpu = True

    def run(self):
        self.block(self.module, self.tree.body)
        # Functions that nothing in this file calls are taken to be called after the module has run.
        held = dict(self.moments)
        off = self.grad_off
        for frame, node, methods, fields in self.functions(self.tree.body, self.module):
            if id(node) not in self.summaries:
                self.moments, self.grad_off = dict(held), off
                self.follow(node, frame, methods, fields)
        scaler_with_bfloat16(self)

    def functions(self, body, frame, methods=None, fields=None):
        """Every function that is defined, with the scope that it sees. Constructors come first, because they set the fields."""
        found = []
        for n in body:
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found.append((frame, n, methods, fields))
            elif isinstance(n, ast.ClassDef):
                mine = {m.name: m for m in n.body if isinstance(m, (ast.FunctionDef, ast.AsyncFunctionDef))}
                found += sorted(self.functions(n.body, frame, mine, {}), key=lambda f: f[1].name != "__init__")
            else:
                for inner in ("body", "orelse", "finalbody"):
                    found += self.functions([c for c in getattr(n, inner, []) or [] if isinstance(c, ast.stmt)], frame, methods, fields)
                for h in getattr(n, "handlers", []) or []:
                    found += self.functions(h.body, frame, methods, fields)
        return found

    def report(self, rule, node, what, fix, **facts):
        """`facts` are for the conditions of the rule's cases in rules.json."""
        line = getattr(node, "lineno", 1)
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else b""
        key = (rule, line, getattr(node, "col_offset", 0))
        ignored = IGNORE.search(text.decode("utf-8", "replace"))
        if key in self.seen or ignored and (not ignored.group(1).strip() or rule in ignored.group(1)):
            return
        self.seen.add(key)
        column = len(text[:getattr(node, "col_offset", 0)].decode("utf-8", "replace")) + 1
        self.findings.append({"id": rule, "line": line, "column": column, "what": sentence(what), "fix": sentence(fix), "aside": self.aside, **facts})

    def loop_over(self, f, n, source_node, source, target):
        loop = Loop(n)
        names = [t.id for t in ast.walk(target) if isinstance(t, ast.Name)]
        written = text_of(source_node, 200)
        if source.kind == "range":
            loop.ranged, loop.count = True, source.count
            loop.each = re.search(r"\blen\(|\.numel\(", written) is not None
            if isinstance(target, ast.Name):
                f.names[target.id] = V("index", base=loop)
            loop.step = any(STEPISH.search(name) and name not in ("i", "it", "idx") for name in names)
        else:
            loop.loader = bool(LOADERISH.search(written)) or source.kind == "loader"
            loop.step = loop.loader or "enumerate" in written and any(STEPISH.search(name) for name in names)
            self.assign(f, target, V("tensor", gpu=source.gpu) if source.kind == "tensor" else UNKNOWN, ast.Pass())
            if source.kind == "tensor" and source.gpu:
                loop.elements = written
        return loop

    def moment(self, name, node):
        if self.moments[name] is None:
            self.moments[name] = getattr(node, "lineno", 0)

    def wait(self, f, node):
        f.trace.append(Entry("wait", node, tuple(f.loops)))
        for loop in f.loops:
            loop.waits = True

    def launch(self, f, node, key, value, operands=(), deep=False):
        """GPU work, certain (value.gpu True) or likely (None, in a file that has to do with GPUs)."""
        if value.gpu is False or value.gpu is None and not self.on_gpu:
            f.trace.append(Entry("call", node, tuple(f.loops), key, operands))
            return
        if value.gpu:
            self.moment("gpu", node)
            self.moment("launch", node)
        for loop in f.loops:
            loop.launches = True
        f.trace.append(Entry("launch", node, tuple(f.loops), key, operands, maybe=value.gpu is None, deep=deep))

    def module_call(self, f, node, key, value, operands):
        for loop in f.loops:
            loop.works = True
        for loop in f.loops[-1:]:
            loop.step = True
        self.launch(f, node, key, value, operands, deep=True)

    def trains(self, f, node):
        for loop in f.loops:
            loop.works = loop.trains = True
        for loop in f.loops[-1:]:
            loop.step = True
        if self.on_gpu:
            f.trace.append(Entry("launch", node, tuple(f.loops), "backward", maybe=True, deep=True))
        backward_without_gradients(self, f, node)

    def environ_update(self, f, node):
        if isinstance(node, ast.Dict):
            for k, v in zip(node.keys, node.values):
                if k is not None:
                    self.environ(f, k, self.ev(f, k).const, self.ev(f, v))

    def environ(self, f, node, name, value):
        if not isinstance(name, str):
            return
        given = value.const if isinstance(value.const, str) else None
        self.env.append({"name": name, "value": given, "line": node.lineno, "after_import": self.moments["import"] is not None})
        set_too_late(self, node, name)
