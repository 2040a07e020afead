"""Nested containers of tensors, by PyTorch's names."""
from .. import _tree

tree_flatten = _tree.flatten
tree_map = _tree.map


def tree_unflatten(leaves, treespec):
    """The nesting of tree_flatten with other leaves."""
    return treespec(list(leaves))


def tree_leaves(tree):
    """The leaves of a nesting."""
    return tree_flatten(tree)[0]


def tree_map_only(kind, fn, tree):
    """tree_map for the leaves of a type; the others stay."""
    return tree_map(lambda leaf: fn(leaf) if isinstance(leaf, kind) else leaf, tree)
