"""docs/support.md: which implementation runs each op, for each class of dtypes, and which ops and dtypes the functions have that are made of ops. With
--check: fails when the page is not what would be written.

The ops come from the op table and the implementations from what the engine says: every case of pyflame.testing.cases runs forward and
backward under pf.explain(). Nothing is listed that was not seen to run. On the null device, which computes nothing, ops are planned.
"""
import gc
import pathlib
import re
import sys

import numpy as np

import pyflame as pf
from pyflame.memory._null import planning
from pyflame.testing import harness
from pyflame.testing.cases import OF_PROGRAMS, all_cases

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "site"))
import names as public_names  # noqa: E402
from calls import results as tried_results  # noqa: E402
from tried import call_of_case  # noqa: E402

PAGE = ROOT / "docs" / "support.md"
TABLE = ROOT / "src" / "pyflame" / "ops" / "ops.def"
CLASSES = ("float32", "float64", "float16, bfloat16", "integers, bool")
HALF = ("float16", "bfloat16")
REFERENCE = "reference"
SLOW = "reference loops (slow)"
BY_LIBRARIES = {"recurrent", "recurrent_grad"}  # GPUs have no other implementation; without a library, and on the cpu and null devices, layers record their steps

# The columns of functions: the dtypes that are tried. The first one is that of the most cases.
TRIED = {"float32": ("float32",), "float64": ("float64",), "float16, bfloat16": HALF, "integers": ("int64", "int32"), "complex": ("complex64",)}
TESTED, RUNS = "tested", "runs"

STEP = re.compile(r"^  step \d+: ([\w.]+)")
NODE = re.compile(r"^    (\w+)\((.*)$")
TYPED = re.compile(r"(?<!param )\b(float64|float32|float16|bfloat16|int64|int32|int16|int8|uint8|bool)\(")


def class_of(op, ins, outs):
    """The dtypes that the op computes in: a half type or float64 wins over float32 (statistics, factors), floats over indices and masks."""
    seen = outs if op == "cast" else ins + outs
    if any(d in seen for d in HALF):
        return CLASSES[2]
    return next((d for d in ("float64", "float32") if d in seen), CLASSES[3])


def implementations(text):
    """(op, class of dtypes, implementation) of every node of an explanation. What is fused behind a matrix product or a convolution
    is not listed: it is elementwise and runs anywhere."""
    impl, listed = None, True
    for line in text.split("\n"):
        step, node = STEP.match(line), NODE.match(line)
        if step:
            impl, listed, epilogue = step.group(1), True, "with epilogue" in line
        elif node and listed:
            listed = not epilogue
            ins, _, outs = node.group(2).partition(" -> ")
            yield node.group(1), class_of(node.group(1), TYPED.findall(ins), TYPED.findall(outs)), impl


def forward_and_backward(case, device):
    arrays = case.arrays()
    harness.run(case, arrays, device)
    if case.grad:
        harness.Differentiated(case, arrays, device).gradients(arrays)


def beyond_the_cases(device):
    """What the tables have no case for, and does run."""
    whole = pf.tensor([1, 3, 2], device=device)
    pf.argmax(whole).item()
    pf.argmin(whole).item()


def plan(case):
    """Forward only. What a case reads on the way is zeros: there are no values on the null device."""
    with planning(), pf.no_grad():
        case.call(pf, *[pf.empty(*s.shape, dtype=getattr(pf, s.dtype)) for s in case.inputs])


def collect(cases, run):
    seen = {}
    for case in cases:
        with np.errstate(all="ignore"):
            for op, dtypes, impl in implementations(pf.explain(run, case)):
                seen.setdefault((op, dtypes), set()).add(impl)
    return seen


def collect_computed(cases, device):
    seen = collect(cases, lambda c: forward_and_backward(c, device))
    for op, dtypes, impl in implementations(pf.explain(beyond_the_cases, device)):
        seen.setdefault((op, dtypes), set()).add(impl)
    return seen


def groups(names):
    """[(heading, ops)] of the op table, which is divided by comments of the form `// --- heading`."""
    result = []
    for line in TABLE.read_text(encoding="utf-8").split("\n"):
        heading, op = re.match(r"// --- (.*)", line), re.match(r"(?:OP|UNARY|BINARY|KERNEL|SPECIAL|ALONG|LINALG)\((\w+),", line)
        if heading:
            result.append((re.split(r"[:;,(]", heading.group(1))[0].strip(), []))
        elif op and op.group(1) != OF_PROGRAMS:
            result[-1][1].append(op.group(1))
    result = [(heading, ops) for heading, ops in result if ops]
    listed = [op for _, ops in result for op in ops]
    if listed != names:
        raise SystemExit("gen_support: the op table and the installed module differ; build and install first (make build install-venv)")
    return result


def functions(cases, ops):
    """{public function that is no op: its cases}, by the module in which it has its shortest name."""
    of_name = {}
    for entry in public_names.inventory(pf).values():
        called = sorted((p.removeprefix("pyflame.") for p in (entry.path, *entry.aliases)), key=lambda p: (p.count("."), p))
        for path in called if entry.kind == "function" else ():
            of_name.setdefault(path, called[0])
    found = {}
    for case in cases:
        for name in case.functions:
            path = next((of_name[p] for p in (name, f"nn.functional.{name}", f"special.{name}") if p in of_name), None)
            if path and path.rpartition(".")[2] not in ops:
                found.setdefault(path, []).append(case)
    return found


def computes(case, dtype):
    """Whether the call of a case computes with its floating inputs in another dtype."""
    try:
        for t in tried_results(call_of_case(pf, case).make(dtype)()):
            t.tolist()
        return True
    except Exception:  # whatever it says: it does not compute
        return False


def function_row(path, cases):
    text = "".join(pf.explain(harness.run, case, case.arrays(), "cpu") for case in cases)
    ops = list(dict.fromkeys(node.group(1) for node in map(NODE.match, text.split("\n")) if node))
    inputs = {case.inputs[0].dtype for case in cases if case.inputs}  # later ones may be indices
    simple = next((c for c in cases if {s.dtype for s in c.inputs} & {"float32"} and not {s.dtype for s in c.inputs} & {"float64", *HALF}), None)
    cells = []
    for dtypes in TRIED.values():
        if inputs & set(dtypes):
            cells.append(TESTED)
        else:
            cells.append(RUNS if simple and all(computes(simple, d) for d in dtypes) else "")
    return f"| `{path}` | {', '.join(f'`{op}`' for op in ops) or 'none: it makes views'} | " + " | ".join(cells) + " |"


def function_tables(cases, ops):
    rows = ["", "## Functions that are made of ops", "",
            "A function that is not in the tables above is made of ops that are, so it runs on every device on which these run. The second column has the ops that its cases",
            f"record on the CPU, without those of gradients. *{TESTED}*: the values in these dtypes are compared with NumPy on every device, in every layout, with gradients where there are any.",
            f"*{RUNS}*: a call in these dtypes computes; no test compares its values. An empty cell: the call is refused, or there is none in these dtypes."]
    found = functions(cases, set(ops))
    for module in sorted({path.rpartition(".")[0] for path in found}):
        rows += ["", f"### pyflame{'.' * bool(module)}{module}", "", "| function | ops | " + " | ".join(TRIED) + " |", "|---" * (2 + len(TRIED)) + "|"]
        rows += [function_row(path, found[path]) for path in sorted(found) if path.rpartition(".")[0] == module]
    return rows


def cell(impls):
    if not impls:
        return ""
    return ", ".join([f"`{i}`" for i in sorted(impls) if i != REFERENCE] + [SLOW] * (REFERENCE in impls))


def check_all(device, seen, names, allowed):
    """What the first table says: every op, with nothing but these implementations."""
    others = {i for impls in seen.values() for i in impls} - allowed
    missing = [op for op in names if not any((op, d) in seen for d in CLASSES)]
    if others or missing:
        raise SystemExit(f"gen_support: on the {device} device: other implementations {sorted(others)}, ops that did not run {missing}")


def page():
    names = [n for n in pf._C.op_names() if n != OF_PROGRAMS]
    cases = all_cases()
    # A case without elements shows nothing about kernels.
    sized = [c for c in cases if not c.inputs or any(np.prod(s.shape) for s in c.inputs)]
    of_ops = [c for c in sized if c.ops]
    cpu = collect_computed(of_ops, "cpu")
    oracle = collect_computed(of_ops, "reference")
    gc.freeze()  # each plan ends with a collection, which need not go through what is there by now
    planned = collect(of_ops, plan)
    check_all("reference", oracle, names, {REFERENCE})
    check_all("null", planned, [n for n in names if not n.endswith("_grad") and "_grad_" not in n and n not in BY_LIBRARIES], {"null"})
    rows = []
    for heading, ops in groups(names):
        rows += ["", f"## {heading[0].upper()}{heading[1:]}", "", "| op | " + " | ".join(CLASSES) + " |", "|---" * (1 + len(CLASSES)) + "|"]
        rows += [f"| `{op}` | " + " | ".join(cell(cpu.get((op, d))) for d in CLASSES) + " |" for op in ops]
    return "\n".join([
        "<!-- Generated by tools/gen_support.py from the op table and from what the engine chose. -->",
        "# What runs where",
        "",
        "| device | ops |",
        "|---|---|",
        f"| `cpu` | all {len(names)}; the tables below name the implementations |",
        f"| `reference` | all {len(names)}, as plain loops that compute in float64; slow, for comparisons |",
        "| `null` | all, but only planned: shapes, dtypes and memory, no values |",
        f"| `rocm`, `cuda` | all {len(names)}, by our own kernels and by the vendors' libraries ([rocm](rocm.md)) |",
        "",
        "The columns are the dtypes in which an op computes. If there are several implementations, shapes and strides decide which one runs;",
        "`pf.explain(fn, *args)` shows which one ran, and why others refused. A function that is not in the tables of ops, such as `cdist`, is made of ops that are:",
        "[the last tables](#functions-that-are-made-of-ops) have these. An empty cell means that no test computes the op in these dtypes,",
        f"because it is not defined for them or casts first (integer division gives floats). *{SLOW}* are correct, but many times",
        "slower than a kernel would be; a message on stderr says so at the first use.",
        "",
        "```python",
        "import pyflame as pf",
        "",
        "x, w = pf.randn(8, 64), pf.randn(64, 32)",
        "print(pf.explain(lambda: (x @ w).relu()))",
        'assert pf.fallbacks() == []',
        "```",
        "",
        f"`{OF_PROGRAMS}` is not in the tables: it launches [kernels of your own](kernels.md) on `rocm` and `cuda`.",
        "`recurrent` and `recurrent_grad` are whole recurrent layers. A GPU has them where cuDNN or MIOpen takes the layers ([when](decisions/0026-recurrent-libraries.md)); otherwise,",
        "and on the `cpu` and `null` devices, the layers record their steps, which are other ops of these tables.",
        *rows,
        *function_tables(sized, names),
        "",
    ])


def main(arguments):
    wanted = page()
    if "--check" in arguments:
        if not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != wanted:
            print(f"{PAGE.relative_to(ROOT)} is not up to date; run `make docs`", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
