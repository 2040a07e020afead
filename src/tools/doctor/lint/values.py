"""What is known of values, calls, loops and functions while a program is followed."""
import ast


class Stop(Exception):
    """Raised when the time limit is reached."""


class V:
    """What is known of a value."""
    __slots__ = ("kind", "dotted", "const", "gpu", "init", "shape", "dtype", "node", "trace", "at", "turned", "count", "base", "attr", "users")

    def __init__(self, kind="", **known):
        self.kind = kind
        for name in self.__slots__[1:]:
            setattr(self, name, known.get(name))

    def but(self, **changes):
        known = {name: getattr(self, name) for name in self.__slots__}
        known.update(changes)
        return V(known.pop("kind"), **known)


UNKNOWN = V()
NONE = V("const")


class Entry:
    """An event of the run: a launch of GPU work, a wait for it, a call, a reading of the clock."""
    __slots__ = ("kind", "node", "loops", "key", "operands", "maybe", "deep")

    def __init__(self, kind, node, loops, key="", operands=(), maybe=False, deep=False):
        self.kind, self.node, self.loops, self.key, self.operands, self.maybe, self.deep = kind, node, loops, key, operands, maybe, deep


class Loop:
    def __init__(self, node, count=None, ranged=False, loader=False, step=False):
        self.node, self.count, self.ranged, self.loader, self.step = node, count, ranged, loader, step
        self.works = self.trains = False  # calls a module; takes a step of training
        self.elements = None              # the name of the tensor whose elements it goes through one by one
        self.each = False                 # as many iterations as something has elements
        self.single = False               # each of these elements is one number, as far as is known
        self.launches = self.waits = False  # gives work to the GPU; waits for it


class Frame:
    """A function being followed, or the module."""

    def __init__(self, node, names, methods=None, fields=None):
        self.node, self.names, self.methods, self.fields = node, names, methods, fields
        self.trace, self.loops, self.conditions, self.tries = [], [], [], []
        self.handling = 0
        self.compiled = []
        self.returned = UNKNOWN
        self.timed = False
        self.nested = {}


class Summary:
    def __init__(self, launches=False, certain=False, waits=False, trains=False, timed=False, empties=False, operands=(), returned=UNKNOWN, trace=()):
        self.launches, self.certain, self.waits, self.trains, self.timed, self.empties = launches, certain, waits, trains, timed, empties
        self.operands, self.returned, self.trace = operands, returned, trace


class ChainNames(dict):
    """The names of a function, and behind them those of the scopes that enclose it."""

    def __init__(self, outer):
        super().__init__()
        self.outer = outer

    def get(self, name, default=None):
        names = self
        while names is not None:
            if dict.__contains__(names, name):
                return dict.__getitem__(names, name)
            names = getattr(names, "outer", None)
        return default


def text_of(node, limit=60):
    try:
        text = ast.unparse(node)
    except Exception:  # a node that Python itself cannot print
        return "…"
    text = " ".join(text.split())
    return text if len(text) <= limit else text[:limit - 1] + "…"


def plural(n, what):
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def sentence(text):
    """Begins with a capital (unless with code) and ends with a full stop."""
    first = text.split(" ", 1)[0]
    return (text[0].upper() + text[1:] if first.isalpha() else text) + "."


def target_as_value(target):
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    if isinstance(target, ast.Attribute):
        return ast.copy_location(ast.Attribute(target.value, target.attr, ast.Load()), target)
    return ast.copy_location(ast.Constant(None), target)


def device_is_gpu(v):
    """True, False, or None where a value does not tell."""
    if v.kind == "device" or v.kind == "tensor":
        return v.gpu
    if v.kind == "const":
        if isinstance(v.const, str):
            return v.const.split(":")[0] in ("cuda", "hip")
        if isinstance(v.const, int) and not isinstance(v.const, bool):
            return True
    return None


def flipped(shape):
    return shape[:-2] + (shape[-1], shape[-2]) if shape and len(shape) >= 2 else shape


def minus_one(count):
    return count - 1 if isinstance(count, int) else f"{count} - 1"


def folded(op, a, b):
    """The value of a small sum of whole numbers."""
    if not all(isinstance(x, int) and not isinstance(x, bool) and abs(x) < 1 << 40 for x in (a, b)):
        return None
    if isinstance(op, ast.Add):
        return a + b
    if isinstance(op, ast.Sub):
        return a - b
    if isinstance(op, ast.Mult):
        return a * b
    if isinstance(op, ast.FloorDiv) and b:
        return a // b
    if isinstance(op, ast.LShift) and 0 <= b < 40:
        return a << b
    if isinstance(op, ast.Pow) and 0 <= b < 40 and abs(a) < 1 << 20:
        return a ** b if abs(a) <= 2 or b < 20 else None
    return None
