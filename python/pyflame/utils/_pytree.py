"""Nested containers of tensors, by PyTorch's names."""
from .._tree import flatten as tree_flatten  # noqa: F401
from .._tree import map as tree_map  # noqa: F401


def tree_unflatten(leaves, treespec):
    """The nesting of tree_flatten with other leaves."""
    return treespec(list(leaves))


def tree_leaves(tree):
    """The leaves of a nesting."""
    return tree_flatten(tree)[0]


def tree_map_only(kind, fn, tree):
    """tree_map for the leaves of a type; the others stay."""
    return tree_map(lambda leaf: fn(leaf) if isinstance(leaf, kind) else leaf, tree)
