"""A part of the case tables, where all of them take too long. Cases are alike when they are of the same kind of test, op and dtype.

PYFLAME_TEST_CASES=n: n of the cases that are alike, spread over the table, so that nothing is left out altogether (0, the default: all).
PYFLAME_TEST_PART=k/m: of those, each m-th; the numbers k to k + m - 1 are all of them. Tests without a Case are divided in the same way.
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
        if not has_case(item):
            groups[item.nodeid].append(item)
        else:
            case = item.callspec.params["case"]
            dtypes = tuple(s.dtype for s in case.inputs) or case.name.rsplit("-", 1)[-1]
            groups[item.function.__name__, tuple(sorted(case.functions)), tuple(sorted(case.ops)), dtypes].append(item)
    return groups.values()


def spread(group, most):
    """`most` of the group, at even distances."""
    most = min(most, len(group))
    return [group[(2 * k + 1) * len(group) // (2 * most)] for k in range(most)]


def in_turn(item, number, parts):
    return (zlib.crc32(item.nodeid.encode()) + number) % parts == 0


def has_case(item):
    return hasattr(item, "callspec") and hasattr(item.callspec.params.get("case"), "inputs")


def part_of(text):
    """(k, m) of PYFLAME_TEST_PART."""
    number, _, parts = text.partition("/")
    if not number.isdigit() or not parts.isdigit() or int(parts) == 0:
        raise ValueError(f"PYFLAME_TEST_PART: this is no part; got {text!r}; expected k/m, such as 1/2")
    return int(number), int(parts)


def chosen(items, most, rotation, part=(0, 1)):
    """Those that run, of PYFLAME_TEST_CASES=most, PYFLAME_TEST_ROTATION=rotation (None: without one) and PYFLAME_TEST_PART=part."""
    if most <= 0 and rotation is None:
        kept = set(items)
    else:
        kept = set()
        for group in alike(items):
            kept.update(spread(group, max(most, 1)))
    if rotation is not None:
        kept.update(item for item in items if in_turn(item, rotation, PARTS))
    return {item for item in kept if in_turn(item, *part)}


def pytest_collection_modifyitems(config, items):
    rotation = os.environ.get("PYFLAME_TEST_ROTATION")
    kept = chosen(items, int(os.environ.get("PYFLAME_TEST_CASES", "0")), int(rotation) if rotation else None,
                  part_of(os.environ.get("PYFLAME_TEST_PART") or "0/1"))
    if rotation:
        config.rotation = f"cases of ops: {len(kept)} of {len(items)}, PYFLAME_TEST_ROTATION={rotation} (make test-full: all)"
    config.hook.pytest_deselected(items=[i for i in items if i not in kept])
    items[:] = [i for i in items if i in kept]


def pytest_terminal_summary(terminalreporter, config):
    if hasattr(config, "rotation"):
        terminalreporter.write_line(config.rotation)
