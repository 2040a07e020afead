"""A part of the case tables, where a device is slow: PYFLAME_TEST_CASES=n keeps n cases of each op, dtype and kind of test, spread over
the table, so that nothing is left out altogether."""
import collections
import os


def pytest_collection_modifyitems(config, items):
    most = int(os.environ.get("PYFLAME_TEST_CASES", "0"))
    if most <= 0:
        return
    groups = collections.defaultdict(list)
    for item in items:
        case = item.callspec.params.get("case") if hasattr(item, "callspec") else None
        if case is None:
            groups[item.nodeid].append(item)
        else:
            dtypes = tuple(s.dtype for s in case.inputs) or case.name.rsplit("-", 1)[-1]
            groups[item.function.__name__, tuple(sorted(case.functions)), tuple(sorted(case.ops)), dtypes].append(item)
    kept = set()
    for group in groups.values():
        for k in range(min(most, len(group))):
            kept.add(group[(2 * k + 1) * len(group) // (2 * min(most, len(group)))])
    config.hook.pytest_deselected(items=[i for i in items if i not in kept])
    items[:] = [i for i in items if i in kept]
