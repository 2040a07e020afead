"""Whether two runs of a program computed the same.

A change that is exact must give the same bits. For any other, a value v that stands for r is right if

    |v - r| <= C * u * (1 + steps) * max(|r|, scale)

u is the rounding of the arithmetic that the change allows, or that of the program's own 16-bit type if it is larger; `steps` the number of optimizer's steps before the value, since errors of earlier steps
are in the weights, and `scale` the root of the mean square of the tensor's values. The factor of the scale is at most MOST: beyond it, nothing would be compared.

Gradients are compared as a whole: the root of the mean square of the differences is at most G * sqrt(u) of the gradient's own, and at most half of it. Of the
inputs of a ReLU, a share of about u is so near to 0 that rounding takes them to the other side, and each of them adds or removes a whole term of the sums of
the gradient: a layer changes it by about the root of u. (A ResNet of 17 convolutions, before training: 0.11 in TF32, by PyTorch and by PyFlame alike.)
The last parameters are compared only
for exact changes: optimizers that divide by the size of a gradient turn rounding into steps of full length. The losses that they lead to are compared.
"""
import json
import math

ROUNDING = {"float32": 2.0**-24, "tf32": 2.0**-11, "float16": 2.0**-11, "bfloat16": 2.0**-8}  # from fine to coarse
C = 64
G = 16
MOST = 0.05
MOST_OF_GRADIENTS = 0.5


def read(path):
    """(head, records) of a file that Observer wrote."""
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return lines[0], lines[1:]


def _name(record):
    return f"{record['kind']} at {record['place']}" if record["kind"] == "read" else f"{record['kind']}, {record['place']}"


def coarsest(precision, dtypes):
    """The coarser one of a change's precision and those of the dtypes that the program computes in. None, the same bits, stays None."""
    if precision is None:
        return None
    order = list(ROUNDING)
    return max([precision, *(d for d in dtypes if d in ROUNDING)], key=order.index)


def tolerance(precision, step):
    """The part of the scale by which a value may differ."""
    return min(MOST, C * ROUNDING[precision] * (1 + step))


def gradient_tolerance(precision):
    """The part of a gradient's size by which it may differ."""
    return min(MOST_OF_GRADIENTS, G * math.sqrt(ROUNDING[precision]))


def difference(reference, other, precision=None):
    """An empty text if two lists of records agree, otherwise what differs first. precision: a key of ROUNDING; None: every bit counts."""
    scales = _scales(reference)
    for a, b in zip(reference, other):
        if (a["kind"], a["place"]) != (b["kind"], b["place"]):
            return f"the program took another way: {_name(b)} instead of {_name(a)}"
        if a["shape"] != b["shape"]:
            return f"{_name(a)}: shape {b['shape']} instead of {a['shape']}"
        if a["digest"] == b["digest"]:
            continue
        if a["kind"] == "parameter" and precision is not None:
            continue
        if a["kind"] == "gradient" and precision is not None:
            wrong = _gradients(a, b, precision, scales.get(a["step"], 0.0))
        else:
            wrong = _values(a, b, precision)
        if wrong:
            return f"{_name(a)}, after {a['step']} steps: {wrong}"
    if len(reference) != len(other):
        return f"{len(other)} values were read instead of {len(reference)}"
    return ""


def _scales(records):
    """The largest norm of a gradient, by step."""
    found = {}
    for r in records:
        if r["kind"] == "gradient" and math.isfinite(r["norm"]):
            found[r["step"]] = max(found.get(r["step"], 0.0), r["norm"])
    return found


def _gradients(a, b, precision, largest):
    """Some gradients are zero but for rounding (a bias before a normalisation), so the root of u of the largest one is the least scale."""
    part = gradient_tolerance(precision)
    scale = max(a["norm"], math.sqrt(ROUNDING[precision]) * largest)
    if not all(math.isfinite(v) for v in [*a["values"], *b["values"], a["norm"], b["norm"]]):
        return "" if a["values"] == b["values"] else "a value is not finite"
    squares = [(x - y) ** 2 for x, y in zip(a["values"], b["values"])]
    found = max(math.sqrt(sum(squares) / len(squares)) if squares else 0.0, abs(a["norm"] - b["norm"]))
    return f"it differs by {found / scale:.2g} of its size, which is more than {part:.2g}" if found > part * scale else ""


def _values(a, b, precision):
    if precision is None or a["dtype"].startswith(("int", "uint", "bool")):
        pairs = [(x, y) for x, y in zip(a["values"], b["values"]) if x != y and not (x != x and y != y)]
        return f"{pairs[0][1]!r} instead of {pairs[0][0]!r}" if pairs else f"other bits in a tensor of shape {a['shape']}" if a["dtype"] == b["dtype"] else ""
    part, scale = tolerance(precision, a["step"]), a["norm"]
    for x, y in [*zip(a["values"], b["values"]), (a["norm"], b["norm"])]:
        if math.isfinite(x) != math.isfinite(y) or math.isfinite(x) and abs(x - y) > part * max(abs(x), scale):
            return f"{y!r} instead of {x!r}, which is more than {part:.1g} of its size"
    return ""
