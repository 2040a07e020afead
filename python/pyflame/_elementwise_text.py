"""pf.elementwise: a formula of scalars, as text or as a Python function, becomes a function of tensors. docs/kernels.md has the language.

The formula is translated into calls of PyFlame's own ops. The engine fuses these into one loop on every device, and they bring their gradients and rules for
dtypes, which the text of a kernel would need once more. A Python function is translated from its source and not traced: `if`, `and` and chained comparisons of
scalars have a meaning in the source, whereas an object that stands for a tensor cannot see them.
"""
from __future__ import annotations

import ast
import builtins
import copy
import dis
import inspect
import linecache
import math
import numbers
import re

from . import _C, _signatures
from ._C import Tensor
from ._error_names import rename
from ._shapes import broadcast_shapes

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from ._annotations import Operand

FUNCTIONS = tuple("""
abs acos acosh asin asinh atan atan2 atanh ceil clamp copysign cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor fmod frac heaviside hypot isfinite isinf isnan
lerp lgamma log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor logit maximum minimum nan_to_num pow rad2deg reciprocal relu remainder round rsqrt
sigmoid sign sin sinc sinh sqrt square tan tanh trunc where xlogy""".split())
_BUILTINS = {"abs": "abs", "max": "maximum", "min": "minimum", "pow": "pow", "round": "round"}
_CONSTANTS = {"pi": math.pi, "inf": math.inf, "nan": math.nan}
_MODULES = ("pyflame", "pyflame.torch", "torch", "math", "numpy", "cupy", "pyflame._C")
_PREFIXES = ("pf", "pyflame", "math", "torch")  # that text may put before a function
_OF_MATH = {"fabs": "abs", "arccos": "acos", "arcsin": "asin", "arctan": "atan", "arctan2": "atan2", "gamma": None}
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift, ast.BitOr, ast.BitXor, ast.BitAnd)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def elementwise(function: str | Callable[..., Any], name: str | None = None, *, inputs: Sequence[str] | None = None) -> Elementwise:
    """A function of tensors from a formula of one element of each: text such as ``"a * x + y"``, or a Python function of scalars. As CuPy's ElementwiseKernel and
    PyTorch's jiterator; it works on every device, has gradients, and the engine computes it in one loop with the elementwise ops around it.

    function: text of one expression, or of several with commas between them for several results; or a lambda, or a function whose statements are assignments to names
    and a return. It may use arithmetic, comparisons, ``and``, ``or``, ``not``, ``b if a else c``, numbers, pi, inf and nan, and the functions of docs/kernels.md by
    the names that they have in pyflame. A name of a Python function that is no argument must be a number, whose value is taken once.
    name: an identifier for errors; default the function's name, or "elementwise".
    inputs: for text, the names of its arguments in their order; default: the order in which they first appear.

    Returns an Elementwise: call it with arguments by position or by keyword, each a tensor or a number, at least one of them a tensor. Tensors broadcast to a common shape,
    and the result, a tensor or a tuple of them, has the dtype of PyTorch's promotion: a number does not widen a tensor's dtype of its kind. Both branches of an
    ``if`` are computed. Defaults of the function's arguments are kept.
    Errors: SyntaxError for text that is no expression; NotImplementedError that names the part of a formula that has no meaning here; NameError for unknown names; ValueError for a
    function whose source cannot be read (write it as text then); TypeError for wrong arguments.

        >>> saxpy = pf.elementwise("a * x + y")
        >>> saxpy(2.0, pf.ones(3), pf.arange(3.0))
        tensor([2., 3., 4.], dtype=pyflame.float32)
        >>> leaky = pf.elementwise(lambda x, slope=0.1: x if x > 0 else slope * x)
        >>> leaky(pf.tensor([-1.0, 2.0]))
        tensor([-0.1000,  2.0000], dtype=pyflame.float32)
    """
    return Elementwise(function, name, inputs)


class Elementwise:
    """What pf.elementwise returns. name: of the function; inputs: the names of its arguments; text: the formula as it was understood."""

    def __init__(self, function: str | Callable[..., Any], name: str | None, inputs: Sequence[str] | None) -> None:
        self.name = name if name is not None else getattr(function, "__name__", "elementwise").replace("<lambda>", "elementwise")
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ValueError(f"elementwise: the name is no identifier; got {name!r}; expected letters, digits and _; hint: inputs= names the arguments")
        if isinstance(function, str):
            formula = _of_text(self.name, function, inputs)
        elif callable(function):
            if inputs is not None:
                raise TypeError(f"{self.name}: a function names its arguments itself; got inputs={inputs!r}; expected none")
            formula = _of_function(self.name, function)
        else:
            raise TypeError(f"elementwise: no formula; got {type(function).__name__}; expected text or a function of scalars")
        self.inputs, self._defaults, self.text, self._call = formula
        self.__name__, self.__doc__ = self.name, f"{self.name}({', '.join(self.inputs)}) = {self.text}, for each element."

    __signature__ = _signatures.OfObject(lambda f: ({}, dict.fromkeys(f.inputs, "Operand"), {}, f._defaults, "Any"))

    def __repr__(self):
        return f"pyflame.elementwise({self.name}({', '.join(self.inputs)}) = {self.text})"

    def __call__(self, *args: Operand, **kwargs: Operand) -> Any:
        """The result for tensors and numbers: a tensor, or a tuple if the formula has several results."""
        values = dict(zip(self.inputs, args))
        expected = f"expected {', '.join(self.inputs)}"
        if len(args) > len(self.inputs):
            raise TypeError(f"{self.name}: there are too many arguments; got {len(args)}; {expected}")
        for key, value in kwargs.items():
            if key not in self.inputs or key in values:
                raise TypeError(f"{self.name}: an argument is {'given twice' if key in values else 'unknown'}; got {key}; {expected}")
            values[key] = value
        values = {**self._defaults, **values}
        if missing := [n for n in self.inputs if n not in values]:
            raise TypeError(f"{self.name}: arguments are missing; got none for {', '.join(missing)}; {expected}")
        for key, value in values.items():
            if isinstance(value, (Tensor, bool, int, float, complex)):
                continue
            if not isinstance(value, numbers.Number) or not hasattr(value, "item"):
                raise TypeError(f"{self.name}: {key} is neither a tensor nor a number; got {type(value).__name__}; expected a tensor, or a number")
            values[key] = value.item()  # a number of NumPy's
        tensors = [v for v in values.values() if isinstance(v, Tensor)]
        if not tensors:
            raise TypeError(f"{self.name}: there is no tensor; got numbers only; expected a tensor for one of {', '.join(self.inputs)}")
        try:
            results = self._call(*(values[n] for n in self.inputs))
        except Exception as error:
            rename(self.name, error, values.values())
            if isinstance(error, TypeError) and "only for integers" in str(error) and "^" in self.text:
                raise TypeError(f"{str(error).partition('; hint: ')[0]}; hint: ^ is the exclusive or of bits; a power is **, as in x ** 2") from None
            raise
        return tuple(_whole(r, tensors) for r in results) if isinstance(results, tuple) else _whole(results, tensors)


def _whole(result, tensors):
    """The result in the common shape of all arguments, also of those that it does not depend on."""
    shape = tuple(broadcast_shapes(*(tuple(t.shape) for t in tensors)))
    if not isinstance(result, Tensor):
        return _C.full(shape, result, device=tensors[0].device)
    return result if tuple(result.shape) == shape else result.expand(*shape)


# ---- reading a formula


def _of_text(name, text, inputs):
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError as error:
        raise SyntaxError(f"{name}: the text is no expression; got {text!r}: {error.msg}; expected one such as 'a * x + y'") from None
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    modules = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute) and getattr(n.value, "id", None) in _PREFIXES}
    found = sorted((n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called and id(n) not in modules), key=lambda n: (n.lineno, n.col_offset))
    free = list(dict.fromkeys(n.id for n in found))
    if inputs is None:
        inputs = [n for n in free if n not in _CONSTANTS]
    else:
        inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        for n in inputs:
            if not isinstance(n, str) or not n.isidentifier() or inputs.count(n) > 1:
                raise ValueError(f"{name}: the names of the arguments are wrong; got {n!r}; expected different identifiers")
        if unknown := [n for n in free if n not in inputs and n not in _CONSTANTS]:
            raise NameError(f"{name}: the formula has an unknown name; got {', '.join(unknown)}; expected one of inputs={inputs}")
    if not inputs:
        raise ValueError(f"{name}: the formula has no arguments; got {text!r}; expected one such as 'a * x + y'")
    reader = _Reader(name, inputs, {k: v for k, v in _CONSTANTS.items() if k not in inputs}, lambda n: None)
    return inputs, {}, ast.unparse(tree.body), reader.compiled([], tree.body)


def _of_function(name, function):
    node = _source(name, function)
    a = node.args
    if a.vararg or a.kwarg:
        raise NotImplementedError(f"{name}: a function of any number of arguments has no formula; got *{(a.vararg or a.kwarg).arg}; expected named arguments")
    inputs = [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    if not inputs:
        raise ValueError(f"{name}: the function has no arguments; expected one for each tensor and number")
    defaults = {k: p.default for k, p in inspect.signature(function).parameters.items() if p.default is not inspect.Parameter.empty}
    around = inspect.getclosurevars(function)
    outside = {**around.globals, **around.nonlocals}
    reader = _Reader(name, inputs, outside, lambda n: getattr(builtins, n, None))
    if isinstance(node, ast.Lambda):
        return inputs, defaults, ast.unparse(node.body), reader.compiled([], node.body)
    body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str))]
    if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        raise NotImplementedError(f"{name}: the function does not end with a result; expected a return as its last statement")
    return inputs, defaults, "; ".join(ast.unparse(s) for s in body), reader.compiled(body[:-1], body[-1].value)


def _source(name, function):
    """The node of the function in the source of its file or cell. Of several in its line it is the one that compiles to the same instructions."""
    advice = "expected a lambda or def in a file or notebook; hint: write the formula as text, pf.elementwise('a * x + y')"
    code = getattr(function, "__code__", None)
    if code is None:
        raise ValueError(f"{name}: the function has no Python source; got {type(function).__name__}; {advice}")
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename, function.__globals__)))
    except SyntaxError:
        tree = ast.Module([], [])
    nodes = [n for n in ast.walk(tree) if isinstance(n, (ast.Lambda, ast.FunctionDef)) and _first_line(n) == code.co_firstlineno]
    same = [n for n in nodes if getattr(n, "name", "<lambda>") == code.co_name and _instructions(_compiled(n, code)) == _instructions(code)]
    if len({ast.dump(n) for n in same}) != 1:
        raise ValueError(f"{name}: the source of the function cannot be read; got {function!r}; {advice}")
    return same[0]


def _first_line(node):
    return min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])


def _compiled(node, code):
    """The node's code. Its names that belong to functions around it are arguments of a function here."""
    around = ast.parse(f"def around({', '.join(code.co_freevars)}): return None")
    if isinstance(node, ast.Lambda):
        around.body[0].body[0].value = node
    else:
        plain = copy.copy(node)
        plain.decorator_list = []
        around.body[0].body.insert(0, plain)
    compiled = compile(ast.fix_missing_locations(around), "", "exec", dont_inherit=True)
    for name in ("around", code.co_name):
        compiled = next(c for c in compiled.co_consts if getattr(c, "co_name", None) == name)
    return compiled


_SILENT = ("RESUME", "PRECALL", "CACHE", "NOP", "PUSH_NULL", "EXTENDED_ARG", "COPY_FREE_VARS", "NOT_TAKEN")


def _instructions(code):
    """What code does, without what depends on where it stands: whether a module's import or a local name precedes it, and how lines are broken."""
    found = []
    for i in dis.get_instructions(code):
        if i.opname in _SILENT:
            continue
        operation = i.opname.replace("LOAD_METHOD", "LOAD_ATTR").replace("CALL_METHOD", "CALL").replace("CALL_FUNCTION", "CALL")
        found.append((operation, None if i.opcode in (*dis.hasjrel, *dis.hasjabs) else repr(i.argval)))
    return found


# ---- translating it


class _Reader:
    """Translates the nodes of a formula into a Python function of tensors and numbers. outside: values of names that are no arguments."""

    def __init__(self, name, inputs, outside, builtin):
        self.name, self.inputs, self.outside, self.builtin = name, inputs, outside, builtin
        self.local, self.constants = set(inputs), {}

    def refuse(self, node, why, hint=""):
        raise NotImplementedError(f"{self.name}: {why}; got {ast.unparse(node)}; expected arithmetic, comparisons, and, or, not, if and functions of docs/kernels.md{hint}")

    def compiled(self, statements, result):
        """The function for these assignments and the expression of the result."""
        body = []
        for s in statements:
            if not (isinstance(s, ast.Assign) and len(s.targets) == 1 and isinstance(s.targets[0], ast.Name)):
                self.refuse(s, "a statement is no assignment to a name", "; hint: b if a else c has a meaning")
            value = self.visit(s.value)
            self.local.add(s.targets[0].id)
            body.append(ast.Assign([ast.Name(_inner(s.targets[0].id), ast.Store())], value))
        parts = [self.visit(e) for e in result.elts] if isinstance(result, ast.Tuple) else self.visit(result)
        body.append(ast.Return(ast.Tuple(parts, ast.Load()) if isinstance(parts, list) else parts))
        function = ast.parse(f"def formula({', '.join(map(_inner, self.inputs))}): pass")
        function.body[0].body = body
        space = {**_runtime(), **self.constants}
        exec(compile(ast.fix_missing_locations(function), f"<elementwise {self.name}>", "exec"), space)
        return space["formula"]

    def visit(self, node):
        method = getattr(self, f"visit_{type(node).__name__}", None)
        if method is None:
            self.refuse(node, f"the formula has a part without meaning for elements ({type(node).__name__})")
        return method(node)

    def constant(self, value):
        key = f"constant_{len(self.constants)}"
        self.constants[key] = value
        return ast.Name(key, ast.Load())

    def visit_Constant(self, node):
        if not isinstance(node.value, (bool, int, float, complex)):
            self.refuse(node, "a constant is no number")
        return node

    def visit_Name(self, node):
        if node.id in self.local:
            return ast.Name(_inner(node.id), ast.Load())
        if node.id not in self.outside:
            raise NameError(f"{self.name}: the formula has an unknown name; got {node.id}; expected an argument or a number that exists")
        return self.number(node, self.outside[node.id])

    def number(self, node, value):
        if not isinstance(value, (bool, int, float, complex)):
            self.refuse(node, f"a name from outside is no number but {type(value).__name__}", "; hint: make it an argument")
        return self.constant(value)

    def visit_Attribute(self, node):
        """A constant of a module: math.pi."""
        if isinstance(node.value, ast.Name) and node.value.id not in self.local:
            module = self.outside.get(node.value.id)
            if inspect.ismodule(module) and isinstance(getattr(module, node.attr, None), (int, float)):
                return self.constant(getattr(module, node.attr))
        self.refuse(node, "an attribute is no constant of a module")

    def visit_BinOp(self, node):
        if not isinstance(node.op, _OPERATORS):
            self.refuse(node, "an operator has no meaning for elements")
        return ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))

    def visit_UnaryOp(self, node):
        value = self.visit(node.operand)
        return _call("f_logical_not", value) if isinstance(node.op, ast.Not) else ast.UnaryOp(node.op, value)

    def visit_BoolOp(self, node):
        function = "f_logical_and" if isinstance(node.op, ast.And) else "f_logical_or"
        return self.joined(function, [self.visit(v) for v in node.values])

    def joined(self, function, values):
        result = values[0]
        for v in values[1:]:
            result = _call(function, result, v)
        return result

    def visit_Compare(self, node):
        sides, parts = [node.left, *node.comparators], []
        for left, op, right in zip(sides, node.ops, sides[1:]):
            if isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)):
                self.refuse(node, "a comparison has no meaning for elements")
            parts.append(ast.Compare(self.visit(left), [op], [self.visit(right)]))
        return self.joined("f_logical_and", parts)

    def visit_IfExp(self, node):
        return _call("f_where", self.visit(node.test), self.visit(node.body), self.visit(node.orelse))

    def visit_Call(self, node):
        function = self.function(node)
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            self.refuse(node, "arguments with a star have no meaning here")
        values = [self.visit(a) for a in node.args]
        if function in ("maximum", "minimum") and len(values) != 2:
            if len(values) < 2 or node.keywords:
                self.refuse(node, f"{ast.unparse(node.func)} needs two values or more")
            return self.joined(f"f_{function}", values)
        call = _call(f"f_{function}", *values)
        call.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return call

    def function(self, node):
        """The name of the function that a call means."""
        f = node.func
        if isinstance(f, ast.Attribute):
            module = f.value.id if isinstance(f.value, ast.Name) and f.value.id not in self.local else None
            known = self.outside.get(module)
            is_known = known.__name__ in _MODULES if inspect.ismodule(known) else known is None and module in _PREFIXES
            found = _OF_MATH.get(f.attr, f.attr) if module and is_known else None
        elif isinstance(f, ast.Name):
            found = self.named(f.id)
        else:
            found = None
        if found not in FUNCTIONS:
            self.refuse(node, f"{ast.unparse(f)} is no function of elements that is known here", "; hint: the names are those of pyflame")
        return found

    def named(self, name):
        value = self.outside.get(name)
        if value is None:
            return _BUILTINS.get(name, name) if self.builtin(name) is not None or name in _BUILTINS else name
        own = getattr(value, "__name__", None)
        from_known = str(getattr(value, "__module__", "")).partition(".")[0] in ("pyflame", "math", "numpy", "builtins")
        return _OF_MATH.get(own, own) if from_known and callable(value) else None


def _inner(name):
    return f"v_{name}"


def _call(function, *args):
    return ast.Call(ast.Name(function, ast.Load()), list(args), [])


# ---- what formulas call


_made = {}


def _runtime():
    if not _made:
        import pyflame

        _made.update({f"f_{name}": _with_numbers(getattr(pyflame, name)) for name in FUNCTIONS if name != "where"}, f_where=_where)
    return _made


def _with_numbers(op):
    """The op, which takes numbers too. A number among tensors gets the dtype that it would have beside them; numbers alone give a number."""

    def of(*args, **kwargs):
        tensors = [a for a in args if isinstance(a, Tensor)]
        if len(tensors) == len(args):
            return op(*args, **kwargs)
        if not tensors:
            result = op(*(_C.tensor(a, dtype=_WIDE.get(type(a)), device="cpu") for a in args), **kwargs)
            return result.item()
        if op.__name__ in _OF_NUMBERS and len(tensors) == 1 and isinstance(args[0], Tensor):
            return op(*args, **kwargs)
        return op(*(a if isinstance(a, Tensor) else _beside(a, tensors) for a in args), **kwargs)

    return of


_OF_NUMBERS = ("clamp", "nan_to_num", "round", "lerp", "pow", "logit")  # whose further arguments may be numbers
_WIDE = {float: _C.float64, complex: _C.complex128, int: _C.int64, bool: _C.bool_}


def _beside(number, tensors):
    """The number as a tensor of the dtype that promotion gives it beside these tensors."""
    dtype = tensors[0].dtype
    for t in tensors[1:]:
        dtype = _C.promote_types(dtype, t.dtype)
    if isinstance(number, complex):
        dtype = dtype if dtype.is_complex else _C.complex128 if dtype == _C.float64 else _C.complex64
    elif isinstance(number, float):
        dtype = dtype if dtype.is_floating_point or dtype.is_complex else _C.get_default_dtype()
    elif not isinstance(number, bool) and dtype == _C.bool_:
        dtype = _C.int64
    return _C.full((), number, dtype=dtype, device=tensors[0].device)


def _where(condition, a, b):
    if not isinstance(condition, Tensor):
        return a if condition else b
    if condition.dtype != _C.bool_:
        condition = condition != 0
    return _C.where(condition, a, b)
