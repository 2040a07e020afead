"""Control flow. Python decides; the bodies are compiled graphs. A rule gets the plan and returns the arguments, the kinds of the outputs, and
the function of the node's line."""
import numpy as np

import pyflame as pf

from ..plan import DEVICE, HOST
from ..table import op
from ..values import to_tensor


def _stack(values, kind, shared, axis=0):
    return np.stack(values) if kind == HOST else shared.do("Stack", pf.stack, list(values), axis)


def _arrange(results, kinds, wanted, device):
    """Results of a body, where the node's outputs are wanted."""
    return [to_tensor(r, device) if w == DEVICE and k != DEVICE else r for r, k, w in zip(results, kinds, wanted)]


def _one(results):
    return results[0] if len(results) == 1 else tuple(results)


@op("If")
def if_(node):
    def build(plan):
        then, other = plan.body(node.attr("then_branch"), []), plan.body(node.attr("else_branch"), [])
        kinds = [a if a == b else ("any" if "any" in (a, b) else DEVICE) for a, b in zip(then.kinds, other.kinds)]
        arguments = [plan.on_host(node.inputs[0], node, 0), "device"] + then.captured + other.captured
        count = len(then.captured)

        def run(condition, device, *captured):
            if np.asarray(condition).reshape(-1)[0]:
                return _one(_arrange(then.call(*captured[:count], device), then.kinds, kinds, device))
            return _one(_arrange(other.call(*captured[count:], device), other.kinds, kinds, device))

        return arguments, kinds, run

    return build


@op("Loop")
def loop(node):
    graph = node.attr("body")
    carried = len(node.inputs) - 2

    def build(plan):
        kinds = [plan.kinds.get(n, DEVICE) for n in node.inputs[2:]]
        for _ in range(carried + 1):  # what the body makes on the device cannot begin on the host
            body = plan.body(graph, [HOST, HOST] + kinds)
            demoted = [k if k == new else ("any" if "any" in (k, new) else DEVICE) for k, new in zip(kinds, body.kinds[1:])]
            if demoted == kinds:
                break
            kinds = demoted
        arguments = [plan.on_host(n, node, k) if n else "None" for k, n in enumerate(node.inputs[:2])] + ["device"]
        arguments += [plan.as_it_is(n) if kinds[k] == HOST else plan.on_device(n) for k, n in enumerate(node.inputs[2:])]
        arguments += body.captured
        stacked = body.kinds[1 + carried:]
        read = plan.namespace["read"]
        key = None if body.kinds[0] == HOST else plan.report.wait(node, 1)  # whether there is another round is a value of a tensor

        def run(limit, condition, device, *rest):
            state, captured = list(rest[:carried]), rest[carried:]
            rows, k = [[] for _ in stacked], 0
            going = True if condition is None else bool(np.asarray(condition).reshape(-1)[0])
            while going and (limit is None or k < int(np.asarray(limit).reshape(-1)[0])):
                results = body.call(*captured, np.int64(k), np.bool_(going), *state, device)
                going = bool(np.asarray(read(results[0], key)).reshape(-1)[0])
                state = _arrange(results[1:1 + carried], body.kinds[1:], kinds, device)
                for row, value in zip(rows, results[1 + carried:]):
                    row.append(value)
                k += 1
            return _one(state + [_stack(r, kind, plan.shared) if r else _no_rows(graph, j, device) for j, (r, kind) in enumerate(zip(rows, stacked))])

        return arguments, kinds + list(stacked), run

    def _no_rows(graph, j, device):
        info = graph.outputs[1 + carried + j]
        shape = [n if isinstance(n, int) else 0 for n in info.shape or ()]
        return to_tensor(np.zeros([0] + shape, info.dtype), device)

    return build


@op("Scan", since=9)
def scan(node):
    graph, count = node.attr("body"), node.attr("num_scan_inputs")
    states = len(node.inputs) - count
    outputs = len(graph.outputs) - states
    in_axes, out_axes = node.attr("scan_input_axes", [0] * count), node.attr("scan_output_axes", [0] * outputs)
    backward, out_backward = node.attr("scan_input_directions", [0] * count), node.attr("scan_output_directions", [0] * outputs)

    def build(plan):
        do = plan.shared.do
        body = plan.body(graph, [DEVICE] * len(node.inputs))
        arguments = ["device"] + [plan.on_device(n) for n in node.inputs] + body.captured

        def run(device, *rest):
            state, scanned, captured = list(rest[:states]), rest[states:states + count], rest[states + count:]
            steps = scanned[0].shape[in_axes[0]]
            rows = [[] for _ in range(outputs)]
            for t in range(steps):
                slices = [do("Select", pf.select, x, in_axes[k], steps - 1 - t if backward[k] else t) for k, x in enumerate(scanned)]
                results = [to_tensor(r, device) for r in body.call(*captured, *state, *slices, device)]
                state = results[:states]
                for row, value in zip(rows, results[states:]):
                    row.append(value)
            return _one(state + [_stack(r[::-1] if out_backward[k] else r, DEVICE, plan.shared, out_axes[k]) for k, r in enumerate(rows)])

        return arguments, [DEVICE] * len(node.outputs), run

    return build


@op("Scan")
def scan_8(node):
    """In opset 8 the first input has lengths, and all others have a batch in front."""
    graph, count = node.attr("body"), node.attr("num_scan_inputs")
    states = len(node.inputs) - 1 - count

    def build(plan):
        do = plan.shared.do
        body = plan.body(graph, [DEVICE] * (states + count))
        arguments = ["device"] + [plan.on_device(n) for n in node.inputs[1:]] + body.captured

        def run(device, *rest):
            given, captured = rest[:states + count], rest[states + count:]
            batches = []
            for b in range(given[0].shape[0]):
                state, scanned = [do("Select", pf.select, x, 0, b) for x in given[:states]], [do("Select", pf.select, x, 0, b) for x in given[states:]]
                rows = []
                for t in range(scanned[0].shape[0]):
                    results = body.call(*captured, *state, *[do("Select", pf.select, x, 0, t) for x in scanned], device)
                    state, rows = results[:states], rows + [results[states:]]
                batches.append(list(state) + [_stack(r, DEVICE, plan.shared) for r in zip(*rows)])
            return _one([_stack(r, DEVICE, plan.shared) for r in zip(*batches)])

        return arguments, [DEVICE] * len(node.outputs), run

    return build


@op("SequenceMap", kind="any")
def sequence_map(node):
    graph = node.attr("body")

    def build(plan):
        body = plan.body(graph, ["any"] * len(node.inputs))
        arguments = ["device"] + [plan.on_device(n) for n in node.inputs] + body.captured
        count = len(node.inputs)

        def run(device, first, *rest):
            others, captured = rest[:count - 1], rest[count - 1:]
            rows = []
            for k, value in enumerate(first):
                more = [o[k] if isinstance(o, list) else o for o in others]
                rows.append([to_tensor(r, device) for r in body.call(*captured, value, *more, device)])
            return _one([list(r) for r in zip(*rows)])

        return arguments, ["any"] * len(node.outputs), run

    return build
