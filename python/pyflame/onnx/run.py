"""What `pyflame run` does: loads a model, calls it, prints shapes, times and where nodes ran. Also: python -m pyflame.onnx.run MODEL."""
import json
import statistics
import sys
import time

import numpy as np

import pyflame as pf

from .._command_help import Parser
from .._entry import command
from .model import load
from .values import NUMBERS, numpy_dtype, to_array, to_tensor


def _pairs(what, texts):
    """{'x': 'file'} of ['x=file']."""
    found = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name or not value:
            raise ValueError(f"run: {what} is not understood; got '{text}'; expected NAME=VALUE")
        found[name] = value
    return found


def _sizes(name, text):
    try:
        return tuple(int(n) for n in text.split(","))
    except ValueError:
        raise ValueError(f"run: the shape of '{name}' is not understood; got '{text}'; expected numbers with commas") from None


def _random(info, shape, generator):
    """Values for an input: normal ones, small indices, or bools."""
    if shape is None and info.shape is None:
        raise ValueError(f"run: the model does not say the shape of '{info.name}'; hint: --shape {info.name}=1,3,224,224")
    sizes = shape if shape is not None else tuple(n if isinstance(n, int) and n > 0 else 1 for n in info.shape)
    dtype = numpy_dtype(NUMBERS[info.dtype])
    if dtype.kind == "f":
        return generator.standard_normal(sizes).astype(dtype)
    return generator.integers(0, 2, sizes).astype(dtype)


def _inputs(model, files, shapes, seed):
    known = {i.name for i in model.inputs}
    for name in (*files, *shapes):
        if name not in known:
            raise ValueError(f"run: the model has no such input; got '{name}'; expected {sorted(known)}")
    generator = np.random.default_rng(seed)
    return {i.name: np.load(files[i.name]) if i.name in files else _random(i, shapes.get(i.name), generator) for i in model.inputs}


def _call(model, inputs):
    results = model(**inputs)
    return [to_array(r) for r in (results if isinstance(results, tuple) else (results,))]


def run(arguments):
    """The description of a run as a dict; outputs are written where the arguments say so."""
    began = time.perf_counter()
    model = load(arguments.model)
    model.to(arguments.device)
    inputs = _inputs(model, _pairs("--input", arguments.input), {k: _sizes(k, v) for k, v in _pairs("--shape", arguments.shape).items()}, arguments.seed)
    loaded = time.perf_counter() - began
    on_device = {k: v if model.takes_host(k) else to_tensor(v, arguments.device) for k, v in inputs.items()}
    times = []
    with pf.no_grad():
        outputs = _call(model, on_device)
        for _ in range(arguments.repeat):
            start = time.perf_counter()
            outputs = _call(model, on_device)
            times.append(time.perf_counter() - start)
    names = [o.name for o in model.outputs]
    if arguments.output:
        np.savez(arguments.output, **{n: v for n, v in zip(names, outputs) if isinstance(v, np.ndarray)})
    report = model.report()
    if arguments.report:
        with open(arguments.report, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)
    return {
        "model": arguments.model, "device": arguments.device, "opsets": model.opsets, "parameters": sum(p.numel() for p in model.parameters()),
        "load_s": loaded, "median_s": statistics.median(times), "least_s": min(times), "calls": len(times),
        "inputs": {k: {"shape": list(v.shape), "dtype": v.dtype.name, "random": k not in _pairs("--input", arguments.input)} for k, v in inputs.items()},
        "outputs": {n: {"shape": list(v.shape), "dtype": v.dtype.name} for n, v in zip(names, outputs) if isinstance(v, np.ndarray)},
        "report": report,
        "fallbacks": pf.fallbacks(),
    }


def _text(result):
    report = result["report"]
    opsets = ", ".join(f"{k or 'ai.onnx'} {v}" for k, v in result["opsets"].items())
    lines = [f"model       {result['model']} (opsets {opsets})"]
    lines.append(f"parameters  {result['parameters']:,}")
    for key in ("inputs", "outputs"):
        for name, v in result[key].items():
            lines.append(f"{key[:-1]:11} {name}: {v['dtype']} {v['shape']}{' (random)' if v.get('random') else ''}")
    lines.append(f"time        {result['median_s'] * 1e3:.3f} ms (median of {result['calls']}; least {result['least_s'] * 1e3:.3f} ms), loading {result['load_s']:.2f} s")
    lines.append(f"on device   {sum(report['on_device'].values())} nodes on {result['device']}")
    lines.append(f"on host     {len(report['on_host'])} nodes of shapes with NumPy; {report['folded']} were computed when the model was loaded")
    if report["control_flow"]:
        lines.append(f"Python      {len(report['control_flow'])} nodes of control flow: {', '.join(report['control_flow'][:5])}")
    for wait in report["waited_for_values"]:
        lines.append(f"waited      {wait['node']} needs the values of its input {wait['input']} ({wait['times']} times)")
    for f in result["fallbacks"]:
        lines.append(f"fallback    {f['op']} on {f['device']} ran on {f['ran_on']}, {f['times']} times for {f['seconds'] * 1e3:.3g} ms: {f['reason']}")
    return "\n".join(lines)


@command()
def main(argv=None):
    parser = Parser(prog="pyflame run", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--input", action="append", default=[])
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output")
    parser.add_argument("--report")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    try:
        result = run(arguments)
    except Exception as error:
        print(f"pyflame: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=2) if arguments.json else _text(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
