"""A part of the case tables, where all of them take too long. Cases are alike when they are of the same kind of test, op and dtype.

PYFLAME_TEST_CASES=n: n of the cases that are alike, spread over the table, so that nothing is left out altogether (0, the default: all).
PYFLAME_TEST_ROTATION=day: one of those that are alike, always the same, and of all others a fifth, which changes with the number; five numbers in
a row are all cases. `make test` sets it to the day and says so at the end; the same number repeats the same run."""
import collections
import os
import zlib

PARTS = 5


def alike(items):
    """The tests in groups of similar cases. A test without a Case is a group of its own."""
    groups = collections.defaultdict(list)
    for item in items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        if not hasattr(case, "inputs"):
            groups[item.nodeid].append(item)
        else:
            dtypes = tuple(s.dtype for s in case.inputs) or case.name.rsplit("-", 1)[-1]
            groups[item.function.__name__, tuple(sorted(case.functions)), tuple(sorted(case.ops)), dtypes].append(item)
    return groups.values()


def spread(group, most):
    """`most` of the group, at even distances."""
    most = min(most, len(group))
    return [group[(2 * k + 1) * len(group) // (2 * most)] for k in range(most)]


def in_turn(item, rotation):
    return (zlib.crc32(item.nodeid.encode()) + rotation) % PARTS == 0


def chosen(items, most, rotation):
    """Those that run, of PYFLAME_TEST_CASES=most and PYFLAME_TEST_ROTATION=rotation (None: without one)."""
    if most <= 0 and rotation is None:
        return set(items)
    kept = set()
    for group in alike(items):
        kept.update(spread(group, max(most, 1)))
    if rotation is not None:
        kept.update(item for item in items if in_turn(item, rotation))
    return kept


def pytest_collection_modifyitems(config, items):
    rotation = os.environ.get("PYFLAME_TEST_ROTATION")
    kept = chosen(items, int(os.environ.get("PYFLAME_TEST_CASES", "0")), int(rotation) if rotation else None)
    if rotation:
        config.rotation = f"cases of ops: {len(kept)} of {len(items)}, PYFLAME_TEST_ROTATION={rotation} (make test-full: all)"
    config.hook.pytest_deselected(items=[i for i in items if i not in kept])
    items[:] = [i for i in items if i in kept]


def pytest_terminal_summary(terminalreporter, config):
    if hasattr(config, "rotation"):
        terminalreporter.write_line(config.rotation)
