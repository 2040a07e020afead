"""Calls: of functions of the program, of Python's own, and of methods."""
import ast
import re

from .names import CLOCKS, MAKER, MODELISH, SYNCISH, WAITS
from .rules_memory import cache_emptied_in_steps
from .rules_settings import exported_command, split_size_setattr
from .rules_timing import constant_operands
from .values import ChainNames, Entry, Frame, Summary, UNKNOWN, V, text_of


class Calls:
    """Follows calls; part of Lint."""

    def ev_Call(self, f, n):
        function = self.ev(f, n.func)
        args = [self.ev(f, a) for a in n.args]
        kw = {k.arg: self.ev(f, k.value) for k in n.keywords}
        if function.kind == "name":
            return self.call_name(f, n, function.dotted, args, kw)
        if function.kind == "method":
            return self.call_method(f, n, function.base, function.attr, args, kw)
        if function.kind == "def":
            return self.call_local(f, n, function, args, kw)
        if function.kind in ("module", "moved"):
            self.module_call(f, n, text_of(n.func), function, (function, *args))
            return V("tensor", gpu=function.gpu)
        if function.kind == "grid":
            self.module_call(f, n, text_of(n.func), V(gpu=True if any(a.gpu for a in args) else None), tuple(args))
            return UNKNOWN
        if function.kind == "class":
            return V("instance", node=function.node)
        return self.call_unknown(f, n, text_of(n.func), args)

    def call_unknown(self, f, n, name, args):
        """A function from outside of this file. Its name tells whether it is a model, a function that is to be timed, or a wait."""
        last = name.split(".")[-1]
        if SYNCISH.search(last):
            self.wait(f, n)
        elif MODELISH.search(last) and not MAKER.match(last) and not name.startswith(("os.", "np.", "numpy.")) and not any(isinstance(a, ast.Starred) for a in n.args):
            # (a function that passes on *args is a decorator, which may time anything)
            self.module_call(f, n, name, UNKNOWN, tuple(args))
            return V("tensor")
        else:
            f.trace.append(Entry("call", n, tuple(f.loops), name))
        return UNKNOWN

    def call_local(self, f, n, function, args, kw):
        name = text_of(n.func)
        parameters = function.node.args
        known = {p.arg for p in parameters.args + parameters.kwonlyargs}
        names = [p.arg for p in parameters.posonlyargs + parameters.args][1 if function.attr else 0:]
        starred = any(isinstance(a, ast.Starred) for a in n.args)
        given = dict(() if starred else zip(names, args), **{k: v for k, v in kw.items() if k in known})
        summary = self.follow(function.node, function.base, f.methods if function.attr else None, f.fields if function.attr else None, given)
        if summary.empties:
            cache_emptied_in_steps(self, f, n)
        operands = list(summary.operands)
        for a in args + [v for k, v in kw.items() if k in known]:
            if a.kind == "def" and summary.timed:
                inner = self.follow(a.node, a.base, None, None)
                constant_operands(self, inner.trace)
                operands += inner.operands
        for loop in f.loops:
            loop.works |= summary.launches
        if summary.certain:
            self.launch(f, n, name, V(gpu=True), tuple(operands), deep=True)
        else:
            f.trace.append(Entry("call", n, tuple(f.loops), name))
        if summary.trains and self.grad_off is not None:
            self.trains(f, n)
        if summary.waits or SYNCISH.search(name):
            self.wait(f, n)
        return summary.returned

    def follow(self, node, frame, methods, fields, given=None):
        """What a function does. It is followed once, with the arguments of its first call, and its own findings are reported meanwhile."""
        key = id(node)
        if key in self.summaries:
            return self.summaries[key]
        if len(self.walking) > 40:
            return Summary()
        self.summaries[key] = Summary()  # for a function that calls itself
        self.walking.append(key)
        f = Frame(node, ChainNames(frame.names), methods, fields)
        a = node.args
        positional = a.posonlyargs + a.args
        for p in positional + a.kwonlyargs + [x for x in (a.vararg, a.kwarg) if x]:
            f.names[p.arg] = UNKNOWN
        for p, d in list(zip(positional[len(positional) - len(a.defaults):], a.defaults)) + list(zip(a.kwonlyargs, a.kw_defaults)):
            if isinstance(d, ast.Constant):
                f.names[p.arg] = V("const", const=d.value)
        f.names.update({k: v for k, v in (given or {}).items() if v.kind})
        if methods is not None and positional:
            f.names[positional[0].arg] = V("self")
        if isinstance(node, ast.Lambda):
            f.returned = self.ev(f, node.body)
        else:
            self.block(f, node.body)
        for inner in f.nested.values():
            if id(inner) not in self.summaries:
                self.follow(inner, f, None, None)
        launches = [i for i, e in enumerate(f.trace) if e.kind == "launch"]
        waits = bool(launches) and self.waited(f.trace, launches[-1], len(f.trace)) or not launches and any(e.kind == "wait" for e in f.trace)
        operands = tuple(o for i in launches for o in f.trace[i].operands)[:64]
        summary = Summary(bool(launches), any(not f.trace[i].maybe for i in launches), waits, any(e.key == "backward" for e in f.trace), f.timed,
                          any(e.kind == "empty" and not e.loops for e in f.trace), operands, f.returned, f.trace)
        self.walking.pop()
        self.summaries[key] = summary
        return summary

    def call_name(self, f, n, name, args, kw):
        first = args[0] if args else UNKNOWN
        if name in CLOCKS:
            f.trace.append(Entry("clock", n, tuple(f.loops)))
            return V("clock", trace=f.trace, at=len(f.trace) - 1)
        if name.startswith("builtins."):
            return self.call_builtin(f, n, name[9:], args, kw)
        if name.startswith("os.environ.") or name in ("os.putenv", "os.system", "os.popen"):
            return self.call_os(f, n, name, args, kw)
        if name.startswith("subprocess."):
            shell = kw.get("shell", UNKNOWN).const is True or name in ("subprocess.getoutput", "subprocess.getstatusoutput")
            if shell:
                exported_command(self, n, first)
            elif first.kind == "tuple" and len(first.users) > 2 and first.users[1].const == "-c":
                exported_command(self, n, first.users[2])
            return UNKNOWN
        if name.startswith("torch."):
            return self.call_torch(f, n, name, args, kw)
        if name in ("timeit.timeit", "timeit.repeat", "triton.testing.do_bench", "triton.testing.do_bench_cudagraph"):
            return self.timeit(f, n, name, first if args else kw.get("stmt", UNKNOWN))
        last = name.split(".")[-1]
        if last in ("do_bench", "do_bench_cudagraph"):
            return self.timeit(f, n, "triton.testing." + last, first)
        return self.call_unknown(f, n, name, args)

    def call_builtin(self, f, n, name, args, kw):
        if name == "range":
            ends = [a.const for a in args]
            count = None
            if all(isinstance(e, int) and not isinstance(e, bool) for e in ends) and 1 <= len(ends) <= 3:
                try:
                    count = min(len(range(*ends)), 1 << 31)
                except (ValueError, OverflowError):
                    count = None
            return V("range", count=count)
        if name == "len" and args and args[0].kind == "tensor":
            return V("extent", base=args[0])
        if name in ("print", "float", "int", "bool", "str", "repr", "sum", "list", "min", "max", "sorted", "any", "all"):
            for a in args:
                self.waited_on(f, n, a)
            return UNKNOWN
        if name in ("enumerate", "zip", "tqdm", "iter", "reversed") and args:
            return V("loader") if any(a.kind == "loader" for a in args) else UNKNOWN
        if name == "setattr" and len(args) == 3 and args[0].kind == "name" and args[1].const == "max_split_size_mb" and args[0].dotted.startswith("torch"):
            split_size_setattr(self, n, args[0].dotted)
            return UNKNOWN
        return self.call_unknown(f, n, name, args)

    def call_os(self, f, n, name, args, kw):
        if name in ("os.environ.setdefault", "os.putenv") and len(args) == 2:
            self.environ(f, n, args[0].const, args[1])
            return args[1]
        if name == "os.environ.update":
            for a in n.args:
                self.environ_update(f, a)
            for k, v in kw.items():
                if k:
                    self.environ(f, n, k, v)
        if name in ("os.system", "os.popen") and args:
            exported_command(self, n, args[0])
        return UNKNOWN

    def call_method(self, f, n, base, attr, args, kw):
        first = args[0] if args else UNKNOWN
        if base.kind == "self":
            if f.methods and attr in f.methods:
                return self.call_local(f, n, V("def", node=f.methods[attr], base=self.module, attr=attr), args, kw)
            return self.call_unknown(f, n, "self." + attr, args)
        if attr == "backward":
            self.trains(f, n)
            return UNKNOWN
        if attr == "step" and (base.kind in ("optimizer", "scaler") or re.search(r"optim|(^|\W)opt$|scaler", text_of(n.func.value), re.I)):
            for loop in f.loops[-1:]:
                loop.step = True
            self.launch(f, n, "step", UNKNOWN, deep=True)
            return UNKNOWN
        if attr == "scale" and (base.kind == "scaler" or text_of(n.func.value).endswith("scaler")):
            self.sides.append(f)
            return first
        if base.kind == "event":
            if attr == "record":
                f.trace.append(Entry("mark", n, tuple(f.loops)))
                base.trace, base.at = f.trace, len(f.trace) - 1
            elif attr == "elapsed_time" and first.kind == "event" and base.trace is f.trace and first.trace is f.trace and first.at > base.at:
                return self.timed(f, n, base.at, first.at, n)
            elif attr in ("synchronize", "wait"):
                self.wait(f, n)
            return V("elapsed") if attr == "elapsed_time" else UNKNOWN
        if attr == "synchronize":
            self.wait(f, n)
            return UNKNOWN
        if attr in ("append", "add", "update") and first.kind == "elapsed":
            self.collected(f, first, n)
            return UNKNOWN
        if attr == "cuda" or attr == "to" or attr in ("half", "bfloat16", "float", "double") and base.kind in ("tensor", "module", "moved"):
            return self.moved(f, n, base, attr, args, kw)
        if base.kind == "tensor" or base.kind == "bins":
            return self.tensor_method(f, n, base, attr, args, kw)
        if attr in WAITS and attr not in ("cpu", "numpy", "nonzero"):
            self.wait(f, n)
            return UNKNOWN
        if base.kind in ("module", "moved"):
            if attr in ("forward", "generate"):
                self.module_call(f, n, text_of(n.func), base, (base, *args))
                return V("tensor", gpu=base.gpu)
            if attr in ("eval", "train", "requires_grad_", "apply", "compile", "share_memory"):
                return base
            if attr in ("cpu", "numpy", "item", "tolist"):
                self.wait(f, n)
            return UNKNOWN
        if attr in ("cpu", "numpy", "replay"):
            if attr == "replay":
                self.module_call(f, n, text_of(n.func), UNKNOWN, ())
            else:
                self.wait(f, n)
            return V("tensor", gpu=False) if attr != "replay" else UNKNOWN
        return self.call_unknown(f, n, text_of(n.func), args)
