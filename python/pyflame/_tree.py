"""Nested containers of tensors: what functions of functions take and give."""


def flatten(tree):
    """(the leaves, a function that builds the same nesting of other leaves)."""
    if isinstance(tree, dict):
        keys = list(tree)
        parts = [flatten(tree[k]) for k in keys]
        return _join(parts, lambda values: type(tree)(zip(keys, values)) if type(tree) is not dict else dict(zip(keys, values)))
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return _join([flatten(v) for v in tree], lambda values: type(tree)(*values))
    if isinstance(tree, (list, tuple)):
        return _join([flatten(v) for v in tree], type(tree))
    return [tree], lambda leaves: leaves[0]


def _join(parts, build):
    counts = [len(leaves) for leaves, _ in parts]

    def rebuild(leaves):
        values, at = [], 0
        for count, (_, inner) in zip(counts, parts):
            values.append(inner(leaves[at : at + count]))
            at += count
        return build(values)

    return [leaf for leaves, _ in parts for leaf in leaves], rebuild


def map(fn, tree):
    """The same nesting of fn(leaf)."""
    leaves, rebuild = flatten(tree)
    return rebuild([fn(leaf) for leaf in leaves])
