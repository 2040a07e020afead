"""Calls of functions, and what they show: shapes, dtypes, errors, types of arguments and results. tools/site/tried.py says which functions are called."""
import functools
import re

DTYPES = ("float32", "float64", "bfloat16", "float16", "complex64", "complex128", "int64", "int32", "int16", "int8", "uint8", "bool")
VARIED = ("float32", "float64", "complex64", "complex128", "int64", "bool")  # of a call, inputs of the first of these dtypes are given in all of DTYPES
MOST_SHAPES = 3
LONGEST = 160  # characters of an error
NODE = re.compile(r"^    (\w+)\(.*\) .*-> ", re.M)  # of an explanation: the line of an op


class Call:
    """One call that can be repeated with other dtypes: make(dtype) is a function without arguments."""

    def __init__(self, make, inputs, dtype="float32"):
        self.make, self.inputs, self.dtype = make, inputs, dtype  # inputs: shapes

    def results(self, dtype=None):
        """The tensors that the call returns, or the error; in its own dtype, or in another one."""
        try:
            found = results(self.make(dtype or (self.dtype if self.inputs else None))())
            for t in found:
                t.tolist()  # a failure of a kernel shows when the values are read
            return found
        except Exception as error:  # each kind is a fact
            return error


def results(value):
    """The tensors of a result."""
    return [v for v in (value if isinstance(value, (tuple, list)) else (value,)) if hasattr(v, "dtype") and hasattr(v, "shape")]


def shape_text(shape):
    return "[" + ", ".join(map(str, shape)) + "]"


def shapes_line(calls):
    """Shapes of inputs and results of a few calls."""
    seen = []
    for call in calls:
        found = call.results()
        if isinstance(found, Exception) or not found or any(0 in shape for shape in call.inputs):
            continue
        text = f"`{', '.join(map(shape_text, call.inputs))} -> {', '.join(shape_text(t.shape) for t in found)}`"
        if text not in seen:
            seen.append(text)
        if len(seen) == MOST_SHAPES:
            break
    return "Shapes, for example: " + ", ".join(seen) + "." if seen else ""


def said(error):
    """The first line of an error, with at most LONGEST characters."""
    text = (str(error).strip().splitlines() or [""])[0].replace("`", "'")
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return text if len(text) <= LONGEST else text[:LONGEST - 1] + "…"


def error_line(kind, cause, error):
    return f"`{kind}` for {cause}: `{said(error)}`"


def dtypes_lines(call):
    """What the function returns for each dtype, those alike together; and what it refuses, with the error."""
    returns, refuses = {}, {}
    for dtype in DTYPES:
        found = call.results(dtype)
        if isinstance(found, Exception):
            refuses.setdefault(type(found).__name__, []).append((dtype, said(found)))
        elif found:
            out = ", ".join(dict.fromkeys(str(t.dtype).rpartition(".")[2] for t in found))
            returns.setdefault("the same" if out == dtype else out, []).append(dtype)
    if not returns and len(refuses) == 1 and len({text for its in refuses.values() for _, text in its}) == 1:
        return []  # it has no argument `dtype`
    parts = [f"{', '.join(f'`{d}`' for d in dtypes)} → {out if out == 'the same' else f'`{out}`'}" for out, dtypes in returns.items()]
    lines = ["Dtypes: " + "; ".join(parts) + "."] if parts else []
    for error, refused in refuses.items():
        lines.append(error_line(error, ", ".join(f"`{d}`" for d, _ in refused), refused[0][1]))
    return lines


def recorded(pf, function, args, kwargs):
    """The call as one that can be repeated in other dtypes: of its tensors of one of VARIED, or of the result where it takes no tensor. None where it has neither."""
    copies = lambda v: v.detach().clone() if isinstance(v, pf.Tensor) else type(v)(map(copies, v)) if type(v) in (tuple, list) else v  # noqa: E731
    args, kwargs = copies(args), {k: copies(v) for k, v in kwargs.items()}
    given = [t for a in (*args, *kwargs.values()) for t in (a if type(a) in (tuple, list) else (a,)) if isinstance(t, pf.Tensor)]
    varied = next((d for d in (getattr(pf, name) for name in VARIED) if any(t.dtype == d for t in given)), None)
    if varied is None:
        return None if given else Call(lambda dtype: functools.partial(function, *args, **{**kwargs, **({"dtype": getattr(pf, dtype)} if dtype else {})}), [])

    first = next(t for t in given if t.dtype == varied)
    given_too = lambda t: t.dtype == varied and (varied != pf.int64 or t.shape == first.shape)  # noqa: E731  integers of another shape may be indices

    def make(dtype):
        def cast(v):
            if isinstance(v, pf.Tensor):
                return v.to(getattr(pf, dtype)) if given_too(v) else v.clone()
            return type(v)(map(cast, v)) if type(v) in (tuple, list) else v

        now, named = cast(args), {k: cast(v) for k, v in kwargs.items()}
        return lambda: function(*now, **named)

    return Call(make, [tuple(t.shape) for t in given], str(varied).rpartition(".")[2])


def shown(pf, value):
    """A value as a reader of a signature wants it: dtype and shape of a tensor, a plain value as it is, otherwise its type."""
    if isinstance(value, pf.Tensor):
        return f"{str(value.dtype).rpartition('.')[2]}{shape_text(value.shape)}"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= 20 and not set("/`\n\\") & set(value) else "str"
    if type(value) in (tuple, list):
        items = [shown(pf, v) for v in value[:3]] + ["…"] * (len(value) > 3)
        inside = ", ".join(items)
        return f"[{inside}]" if type(value) is list else f"({inside},)" if len(value) == 1 else f"({inside})"
    if hasattr(value, "__enter__") and type(value).__name__.startswith("_"):
        return "context manager"
    if callable(value) and hasattr(value, "__name__") and not isinstance(value, type):
        return "function"
    return (value if isinstance(value, type) else type(value)).__name__.lstrip("_")


def arguments(pf, args, kwargs):
    return "({})".format(", ".join([shown(pf, a) for a in args] + [f"{name}={shown(pf, a)}" for name, a in kwargs.items()]))


def call_line(pf, args, kwargs, result):
    """One call with types of arguments and result."""
    text = f"{arguments(pf, args, kwargs)} → {shown(pf, result)}"
    return f"A call, for example: `{text}`." if len(text) <= LONGEST else f"Returns, for example: `{shown(pf, result)}`."


def ops_line(pf, call):
    """The ops of the engine that one call runs, in their order, each once. Empty where it raises."""
    try:
        found = call.make(call.dtype if call.inputs else None)
        pf.synchronize()  # the inputs were computed before
        text = pf.explain(found)
    except Exception:  # the other lines say what it raises
        return ""
    ops = list(dict.fromkeys(NODE.findall(text)))
    return f"Ops of the engine: {', '.join(f'`{op}`' for op in ops) or 'none'}."


def refusal_line(function, args, kwargs):
    """The error for a first argument that is of no use to anybody; empty where there is none, or where it does not name what was expected."""
    try:
        function(object(), *args[1:], **kwargs)
    except (TypeError, ValueError) as error:
        if "; got " in str(error) or "expected" in str(error):
            return error_line(type(error).__name__, "another object", error)
    except Exception:  # says nothing of the function
        pass
    return ""
