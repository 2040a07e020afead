"""Every public function and class with N or more parameters names each of them in its docstring. tools/site/arguments.py says what counts as a name."""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "site"))

import arguments  # noqa: E402
import names  # noqa: E402

import pyflame  # noqa: E402

INVENTORY = names.inventory(pyflame)
FEWEST = 4  # parameters from which on each is named


def entries(**values):
    return {f"pyflame.{name}": names.Entry(f"pyflame.{name}", value) for name, value in values.items()}


def scaled(first, second, third, dtype=None):
    """first is multiplied by second.

    third: what is added. dtype: of the result.
    """


def test_each_parameter_is_named():
    lacking = [f"{path}: {', '.join(which)}" for path, which in arguments.unnamed(INVENTORY, FEWEST).items()]
    assert not lacking, "parameters that the docstring does not name:\n" + "\n".join(lacking)


def test_what_is_not_named_is_found():
    def shifted(first, second, third):
        """The first, moved by the second."""

    assert arguments.unnamed(entries(scaled=scaled, shifted=shifted), 3) == {"pyflame.shifted": ["third"]}
    assert not arguments.unnamed(entries(shifted=shifted), 4)


def test_a_name_is_a_whole_word():
    def f(a, dim, size):
        """dims and resize of a."""

    assert arguments.unnamed(entries(f=f), 3) == {"pyflame.f": ["dim", "size"]}


def test_parameters_of_another_entry_count_if_it_has_them():
    def same(first, second, fourth):
        """The arguments are those of scaled."""

    assert arguments.unnamed(entries(scaled=scaled, same=same), 3) == {"pyflame.same": ["fourth"]}


def test_another_entry_that_does_not_exist_or_says_nothing_does_not_count():
    def lost(first, second, third):
        """The arguments are those of nowhere."""

    def silent(first, second, third):
        """Nothing."""

    def of_silent(first, second, third):
        """The arguments are those of silent."""

    found = arguments.unnamed(entries(lost=lost, silent=silent, of_silent=of_silent), 3)
    assert found == dict.fromkeys(("pyflame.lost", "pyflame.silent", "pyflame.of_silent"), ["first", "second", "third"])


def test_the_init_of_a_class_counts():
    class Box:
        """A box."""

        def __init__(self, height, width, depth):
            """height, width, depth: in metres."""

    assert not arguments.unnamed(entries(Box=Box), 3)


def test_signatures_of_compiled_functions_are_read():
    assert arguments.parameters(pyflame.nn.functional.scaled_dot_product_attention)[:3] == ["query", "key", "value"]
