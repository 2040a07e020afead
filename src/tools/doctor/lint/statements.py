"""Statements, in the order in which they run."""
import ast

from .names import IMPORTS_TORCH
from .rules_settings import autotune_attribute, split_size_attribute
from .rules_tensors import loop_over_elements
from .rules_training import catches_compilation, compile_in_try
from .values import ChainNames, Frame, Loop, Summary, UNKNOWN, V, target_as_value


class Statements:
    """Follows statements; part of Lint."""

    def block(self, f, body):
        for n in body:
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and f is self.module:
                f.names.setdefault(n.name, V("def", node=n, base=f))
        for n in body:
            self.statement(f, n)

    def statement(self, f, n):
        do = getattr(self, "do_" + type(n).__name__, None)
        if do:
            do(f, n)
            return
        for child in ast.iter_child_nodes(n):
            if isinstance(child, ast.expr):
                self.ev(f, child)

    def do_Import(self, f, n):
        for a in n.names:
            if a.name.split(".")[0] in IMPORTS_TORCH and self.moments["import"] is None:
                self.moments["import"] = n.lineno
            f.names[a.asname or a.name.split(".")[0]] = V("name", dotted=a.name if a.asname else a.name.split(".")[0])

    def do_ImportFrom(self, f, n):
        module = n.module or ""
        if not n.level and module.split(".")[0] in IMPORTS_TORCH and self.moments["import"] is None:
            self.moments["import"] = n.lineno
        for a in n.names:
            f.names[a.asname or a.name] = V("name", dotted="." + a.name if n.level else module + "." + a.name)

    def do_FunctionDef(self, f, n):
        decorators = [self.ev(f, d) for d in n.decorator_list]
        for d in n.args.defaults + n.args.kw_defaults:
            if d is not None:
                self.ev(f, d)
        kernel = any("triton" in (d.dotted or "") or (d.base is not None and "triton" in (getattr(d.base, "dotted", "") or "")) for d in decorators)
        f.names[n.name] = V("kernel" if kernel else "def", node=n, base=f)
        if kernel:
            self.summaries[id(n)] = Summary(launches=True, certain=True)
        elif f is not self.module:
            f.nested[n.name] = n

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, f, n):
        for d in n.decorator_list + n.bases:
            self.ev(f, d)
        f.names[n.name] = V("class", node=n, base=f)
        scope = Frame(n, ChainNames(f.names))
        for child in n.body:
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                self.statement(scope, child)

    def do_Assign(self, f, n):
        value = self.ev(f, n.value)
        for target in n.targets:
            self.assign(f, target, value, n)

    def do_AnnAssign(self, f, n):
        if n.value is not None:
            self.assign(f, n.target, self.ev(f, n.value), n)

    def do_AugAssign(self, f, n):
        value = self.ev(f, n.value)
        if isinstance(n.target, ast.Subscript) and self.ev(f, n.target.value).dotted == "os.environ":
            return
        if isinstance(n.target, ast.Name) and f.names.get(n.target.id, UNKNOWN).dotted == "os.environ" or (isinstance(n.target, ast.Attribute) and self.ev(f, n.target).dotted == "os.environ"):
            self.environ_update(f, n.value)
            return
        if value.kind == "elapsed" and isinstance(n.op, ast.Add):
            self.collected(f, value, n)
        old = self.ev(f, target_as_value(n.target)) if not isinstance(n.target, ast.Name) else f.names.get(n.target.id, UNKNOWN)
        if old.kind == "tensor":
            self.launch(f, n, type(n.op).__name__, old, (old, value))
        elif isinstance(n.target, ast.Name):
            f.names[n.target.id] = UNKNOWN

    def assign(self, f, target, value, n):
        if isinstance(target, ast.Name):
            f.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = target.elts
            whole = getattr(n, "value", None)
            if isinstance(whole, (ast.Tuple, ast.List)) and len(whole.elts) == len(parts) and isinstance(n, ast.Assign):
                values = value.users or [UNKNOWN] * len(parts)
            elif value.kind == "mem_info":
                values = [V("free"), V("memtotal")] + [UNKNOWN] * len(parts)
            else:
                values = [value if value.kind in ("tensor", "moved") else UNKNOWN] * len(parts)
            for part, v in zip(parts, values):
                self.assign(f, part, v, ast.Pass())
        elif isinstance(target, ast.Starred):
            self.assign(f, target.value, UNKNOWN, ast.Pass())
        elif isinstance(target, ast.Attribute):
            base = self.ev(f, target.value)
            if base.kind == "self" and f.fields is not None:
                f.fields[target.attr] = value
            autotune_attribute(self, target, base)
            split_size_attribute(self, target, base, n)
        elif isinstance(target, ast.Subscript):
            base = self.ev(f, target.value)
            if base.dotted == "os.environ":
                self.environ(f, n, self.ev(f, target.slice).const, value)
            else:
                self.index(f, target, base)

    def do_Expr(self, f, n):
        v = self.ev(f, n.value)
        if v.kind == "grad_mode" and v.const is False:
            self.grad_off = (n, f)
        elif v.kind == "grad_mode" and v.const is True:
            self.grad_off = None

    def do_Return(self, f, n):
        if n.value is not None:
            f.returned = self.ev(f, n.value)

    def do_If(self, f, n):
        test = self.ev(f, n.test)
        self.waited_on(f, n.test, test)
        if isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING" or isinstance(n.test, ast.Attribute) and n.test.attr == "TYPE_CHECKING":
            held = dict(self.moments)
            self.block(f, n.body)
            self.moments = held
            self.block(f, n.orelse)
            return
        f.conditions.append(n.test)
        self.block(f, n.body)
        f.conditions.pop()
        f.conditions.append(ast.UnaryOp(ast.Not(), n.test))
        self.block(f, n.orelse)
        f.conditions.pop()

    def do_For(self, f, n):
        source = self.ev(f, n.iter)
        loop = self.loop_over(f, n, n.iter, source, n.target)
        f.loops.append(loop)
        self.block(f, n.body)
        f.loops.pop()
        loop_over_elements(self, f, loop)
        self.block(f, n.orelse)

    do_AsyncFor = do_For

    def do_While(self, f, n):
        loop = Loop(n)
        f.loops.append(loop)
        self.waited_on(f, n.test, self.ev(f, n.test))
        self.block(f, n.body)
        f.loops.pop()
        self.block(f, n.orelse)

    def do_With(self, f, n):
        off, on = self.grad_off, False
        for item in n.items:
            v = self.ev(f, item.context_expr)
            on |= v.kind == "grad_mode" and v.const is True
            if item.optional_vars is not None:
                self.assign(f, item.optional_vars, v if v.kind not in ("grad_mode",) else UNKNOWN, ast.Pass())
        if on:
            self.grad_off = None
        self.block(f, n.body)
        if on:
            self.grad_off = off

    do_AsyncWith = do_With

    def do_Try(self, f, n):
        broad = False
        for h in n.handlers:
            kinds = [self.ev(f, t).dotted or "" for t in (h.type.elts if isinstance(h.type, ast.Tuple) else [h.type])] if h.type is not None else ["builtins.Exception"]
            raises = bool(h.body) and isinstance(h.body[-1], ast.Raise)
            broad |= catches_compilation(kinds, raises)
        at = len(f.trace)
        f.tries.append(broad)
        first = len(f.compiled)
        self.block(f, n.body)
        f.tries.pop()
        if broad:
            compile_in_try(self, f.compiled[first:], f.trace[at:])
        if not f.tries:
            del f.compiled[:]
        f.handling += 1
        for h in n.handlers:
            self.block(f, h.body)
        f.handling -= 1
        self.block(f, n.orelse)
        self.block(f, n.finalbody)

    do_TryStar = do_Try

    def do_Assert(self, f, n):
        self.waited_on(f, n.test, self.ev(f, n.test))

    def do_Match(self, f, n):
        self.ev(f, n.subject)
        for case in n.cases:
            self.block(f, case.body)

    def waited_on(self, f, node, value):
        if value.kind == "tensor" and value.gpu is not False:
            self.wait(f, node)
