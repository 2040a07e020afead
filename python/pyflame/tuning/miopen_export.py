"""Measurements of MIOpen's solutions as lines of its find-db."""
import re
from dataclasses import replace

from . import convolutions, miopen

NOTES = ("MIOpen reads it under a name of its own, such as gfx942130.HIP.3_3_0.ufdb.txt, in MIOPEN_USER_DB_PATH; hint: run the program once and give the file the name of the one that MIOpen made",
         "solutions that compute with transforms (Winograd, FFT) are not in it, because PyFlame does not measure them; for a convolution in the file MIOpen takes none of them")


def _own_plans(rows):
    """The plan that the search for plans found, by the convolution as the search writes it. The entry without a configuration runs this plan. Searches of several lengths may
    have found several plans; then it is not known which one ran."""
    fastest = {}
    for row in rows:
        text, found, _ = row.problem.partition(", searched for ")
        if row.op != "convolution plan" or not row.sound or not found:
            continue
        plans = fastest.setdefault(text, {})
        if row.problem not in plans or row.us < plans[row.problem].us:
            plans[row.problem] = row
    names = {text: {row.entry for row in plans.values()} for text, plans in fastest.items()}
    return {text: found.pop() for text, found in names.items() if len(found) == 1}


def _searched(problem):
    """The text of a convolution as the search for plans writes it (search_key in backends/gpu/libs/dnn.cpp)."""
    c = problem.convolution
    stride, padding, dilation = ("x".join(map(str, pair)) for pair in (c.stride, c.padding, c.dilation))
    text = f"miopen {c.op} {c.dtype} stride {stride} padding {padding} dilation {dilation} groups {c.groups} any_order {problem.any_order} rounded {problem.rounded}"
    for name, shape, where in zip(("image", "weight", "result"), c.shapes, problem.layouts):
        text += f", {name} ({', '.join(map(str, shape))})" + "".join(f" {order}" for layout, order in miopen.ORDERS.items() if layout in where)
    return text


def _solution(entry, own=None):
    """(number, layout) of an entry that runs a solution of MIOpen, or None. own: the plan that the entry without a configuration runs."""
    name, _, plan = entry.partition(":")
    match = re.fullmatch("solution=([0-9]+),(contiguous|channels_last)", plan or own or "")
    return (int(match[1]), next(layout for layout, order in miopen.ORDERS.items() if order == match[2])) if match and name == miopen.ENTRY else None


def _as_named(c, layout):
    """The Convolution as MIOpen names it: if all tensors are packed in both orders, they are NCHW."""
    both = all("NCHW" in convolutions.layouts(shape, convolutions.strides(shape, layout)) for shape in c.shapes)
    return replace(c, layout="NCHW" if both else layout)


def _newest_environment(rows):
    """(device, libraries) of the last measurement of a solution, or None. A find-db is of one GPU, and its times are of one version."""
    return next(((row.device, row.libraries) for row in reversed(rows) if _solution(row.entry)), None)


def _measured(rows):
    """({Convolution: {number: (tensors that were transposed, microseconds, workspace)}}, {why a problem is not in it: how many})."""
    here = _newest_environment(rows)
    own = _own_plans(row for row in rows if (row.device, row.libraries) == here)
    groups = {}
    for row in rows:
        if row.problem.partition("(")[0] in convolutions.MADE:
            groups.setdefault((row.device, row.libraries, row.problem), []).append(row)
    found, left = {}, {}
    for (device, libraries, text), group in groups.items():
        problem = convolutions.problem_of(text)
        why = "with other ops fused to them, or of volumes" if problem is None else "that were measured on another device or with other versions" if here not in (None, (device, libraries)) else None
        solutions = [] if why else [(solution, row) for row in group if row.sound and (solution := _solution(row.entry, own.get(_searched(problem)))) and solution[0] in miopen.NAMES]
        if not solutions:
            why = why or "of which no solution of MIOpen with a known name was measured and right"
            left[why] = left.get(why, 0) + 1
        for (number, layout), row in solutions:
            moved = sum(layout not in where for where in problem.layouts)
            known = found.setdefault(_as_named(problem.convolution, layout), {})
            known[number] = min(known.get(number, (4,)), (moved, row.us, row.workspace))
    return found, left


def lines(rows):
    """The lines of a find-db with the solutions of MIOpen that were measured and right, and {why problems are not in it: how many}. rows: measurements (database.rows). MIOpen takes the
    fastest solution of a line that it can run. Where tensors were transposed for the solutions, their times have that, too; what was measured with the fewest transposed tensors
    counts. The workspace is at least what MIOpen asks for."""
    found, left = _measured(rows)
    written = []
    for c, solutions in found.items():
        fewest = min(moved for moved, _, _ in solutions.values())
        best = sorted((us, number, workspace) for number, (moved, us, workspace) in solutions.items() if moved == fewest)
        values = (f"{miopen.NAMES[n][0]}:{us / 1000:.6g},{workspace},{miopen.ALGORITHMS[c.op]}{miopen.NAMES[n][1]}" for us, n, workspace in best)
        written.append(f"{miopen.key(c)}={';'.join(values)}")
    return written, left
