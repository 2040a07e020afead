"""Expressions, and what is known of their values."""
import ast

from .names import CONVENTIONS, SIZES
from .rules_memory import free_without_others
from .rules_settings import removed_provider
from .rules_tensors import edges_as_bins, loop_over_elements
from .values import UNKNOWN, V, device_is_gpu, flipped, folded, text_of


class Expressions:
    """Follows expressions; part of Lint."""

    def ev(self, f, n):
        do = getattr(self, "ev_" + type(n).__name__, None)
        if do:
            return do(f, n)
        for child in ast.iter_child_nodes(n):
            if isinstance(child, ast.expr):
                self.ev(f, child)
        return UNKNOWN

    def ev_Constant(self, f, n):
        removed_provider(self, n)
        return V("const", const=n.value)

    def ev_Name(self, f, n):
        v = f.names.get(n.id)
        if v is None and f is not self.module:
            v = self.module.names.get(n.id)
        if v is not None:
            return v
        if n.id not in self.bound:
            if n.id in CONVENTIONS:
                return V("name", dotted=CONVENTIONS[n.id])
            return V("name", dotted="builtins." + n.id)
        return UNKNOWN

    def ev_Attribute(self, f, n):
        base = self.ev(f, n.value)
        if base.kind == "name":
            dotted = base.dotted + "." + n.attr
            if dotted.startswith("torch.") and n.attr in SIZES:
                return V("name", dotted=dotted, dtype=n.attr)
            return V("name", dotted=dotted)
        if base.kind == "self" and f.fields is not None and n.attr in f.fields:
            return f.fields[n.attr]
        if base.kind == "tensor":
            if n.attr in ("T", "mT"):
                return base.but(turned=not base.turned, shape=flipped(base.shape))
            if n.attr == "device":
                return V("device", gpu=base.gpu)
            if n.attr == "shape":
                return V("shape", base=base)
            if n.attr in ("data", "grad", "real", "imag", "H"):
                return base
        if n.attr == "total_memory":
            return V("memtotal")
        return V("method", base=base, attr=n.attr, node=n)

    def ev_Starred(self, f, n):
        return self.ev(f, n.value)

    def ev_Await(self, f, n):
        return self.ev(f, n.value)

    def ev_NamedExpr(self, f, n):
        v = self.ev(f, n.value)
        self.assign(f, n.target, v, ast.Pass())
        return v

    def ev_Tuple(self, f, n):
        return V("tuple", users=[self.ev(f, e) for e in n.elts])

    ev_List = ev_Tuple

    def ev_Dict(self, f, n):
        for part in n.keys + n.values:
            if part is not None:
                self.ev(f, part)
        return UNKNOWN

    def ev_JoinedStr(self, f, n):
        for part in n.values:
            if isinstance(part, ast.FormattedValue):
                self.waited_on(f, part, self.ev(f, part.value))
        return UNKNOWN

    def ev_IfExp(self, f, n):
        self.waited_on(f, n.test, self.ev(f, n.test))
        a, b = self.ev(f, n.body), self.ev(f, n.orelse)
        if a.kind == b.kind == "const":
            gpu = device_is_gpu(a) or device_is_gpu(b)
            return V("device", gpu=True) if gpu and isinstance(a.const, str) else UNKNOWN
        if a.kind == b.kind == "device":
            return a if a.gpu else b
        return UNKNOWN

    def ev_BoolOp(self, f, n):
        values = [self.ev(f, v) for v in n.values]
        for node, v in zip(n.values, values):
            self.waited_on(f, node, v)
        return UNKNOWN

    def ev_UnaryOp(self, f, n):
        v = self.ev(f, n.operand)
        if isinstance(n.op, ast.USub) and isinstance(v.const, (int, float)):
            return V("const", const=-v.const)
        if isinstance(n.op, ast.Not):
            self.waited_on(f, n.operand, v)
            return UNKNOWN
        if v.kind == "tensor":
            self.launch(f, n, type(n.op).__name__, v, (v,))
            return V("tensor", gpu=v.gpu, shape=v.shape, dtype=v.dtype)
        return UNKNOWN

    def ev_Compare(self, f, n):
        values = [self.ev(f, v) for v in [n.left] + n.comparators]
        tensors = [v for v in values if v.kind == "tensor"]
        if tensors and not any(isinstance(op, (ast.Is, ast.IsNot)) for op in n.ops):
            self.launch(f, n, "compare", tensors[0], tuple(values))
            return V("tensor", gpu=tensors[0].gpu, shape=tensors[0].shape)
        return UNKNOWN

    def ev_BinOp(self, f, n):
        a, b = self.ev(f, n.left), self.ev(f, n.right)
        if isinstance(n.op, ast.Sub):
            if a.kind == "clock" and b.kind == "clock":
                return self.elapsed(f, n, a, b)
            if a.kind == "memtotal" and b.kind == "memused":
                free_without_others(self, n)
                return V("free")
        if a.kind == "elapsed" or b.kind == "elapsed":
            return a if a.kind == "elapsed" else b
        if isinstance(n.op, ast.MatMult) and (a.kind in ("tensor", "moved") or b.kind in ("tensor", "moved")):
            return self.gemm(f, n, "matmul", a, b)
        for v in (a, b):
            if v.kind == "tensor":
                gpu = True if a.gpu or b.gpu else v.gpu
                result = V("tensor", gpu=gpu, shape=v.shape, dtype=v.dtype)
                self.launch(f, n, type(n.op).__name__, result, (a, b))
                return result
        return V("const", const=folded(n.op, a.const, b.const)) if a.kind == b.kind == "const" else UNKNOWN

    def ev_Subscript(self, f, n):
        base = self.ev(f, n.value)
        if base.kind == "kernel" or base.kind == "method" and base.attr == "kernel":
            self.ev(f, n.slice)
            return V("grid", base=base)
        if base.kind == "mem_info":
            i = self.ev(f, n.slice).const
            return V("memtotal") if i == 1 else V("free")
        if base.kind == "shape":
            self.ev(f, n.slice)
            return V("extent", base=base.base)
        if base.kind == "memstats":
            self.ev(f, n.slice)
            return V("memused")
        return self.index(f, n, base)

    def index(self, f, n, base):
        """base[…], read or written."""
        parts = n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice]
        sliced = any(isinstance(p, ast.Slice) for p in parts)
        values = [self.ev(f, p) for p in parts]
        if base.kind != "tensor":
            return UNKNOWN
        for v in values:
            if v.kind == "index" and base.gpu and not sliced and v.base.elements is None:
                v.base.elements = text_of(n.value)
                v.base.single = len(base.shape) == len(values) if base.shape else v.base.each
            if v.kind == "bins" and v.count is not None and base.shape and base.shape[0] == v.count:
                edges_as_bins(self, v, n.value, base)
        if any(v.kind == "bins" for v in values) or isinstance(n.ctx, ast.Store):
            self.launch(f, n, "index", base, (base,))
        return V("tensor", gpu=base.gpu, dtype=base.dtype)

    def ev_Lambda(self, f, n):
        return V("def", node=n, base=f)

    def comprehension(self, f, n, *results):
        loops = 0
        for g in n.generators:
            source = self.ev(f, g.iter)
            f.loops.append(self.loop_over(f, n, g.iter, source, g.target))
            loops += 1
            for condition in g.ifs:
                self.waited_on(f, condition, self.ev(f, condition))
        for r in results:
            self.ev(f, r)
        for _ in range(loops):
            loop = f.loops.pop()
            loop_over_elements(self, f, loop)
        return UNKNOWN

    def ev_ListComp(self, f, n):
        return self.comprehension(f, n, n.elt)

    ev_SetComp = ev_GeneratorExp = ev_ListComp

    def ev_DictComp(self, f, n):
        return self.comprehension(f, n, n.key, n.value)

    def extent(self, f, node):
        """A size: a number where it is known, otherwise the text that gives it."""
        if isinstance(node, ast.Name):
            v = self.ev(f, node)
            return v.const if isinstance(v.const, int) else node.id
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int) else None
        if isinstance(node, ast.BinOp):
            v = self.ev(f, node) if all(isinstance(x, (ast.BinOp, ast.Name, ast.Constant, ast.operator, ast.expr_context)) for x in ast.walk(node)) else UNKNOWN
            if isinstance(v.const, int):
                return v.const
        return text_of(node)
