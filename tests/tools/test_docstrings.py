"""Every public name has a docstring and an example that CI runs. tools/site/names.py says which names are public."""
import doctest
import inspect
import pathlib
import re
import sys
import types

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "site"))

import names  # noqa: E402
import uses  # noqa: E402

import pyflame  # noqa: E402

INVENTORY = names.inventory(pyflame)


def test_every_public_name_has_a_docstring():
    assert len(INVENTORY) > 1000
    missing = list(names.without_docstring(INVENTORY))
    assert not missing, f"without a docstring: {', '.join(missing)}"


SHORTEST = 12  # words; a property may do with fewer
SHORTEST_PROPERTY = 4


def short_docstrings(entries):
    """Each public function, class, method or property whose docstring has too few words, with the number of its words."""
    for path, entry in entries.items():
        if entry.kind == "data":
            continue
        texts = [(path, entry.value, names.doc_of(entry.value))]
        texts += [(f"{path}.{name}", value, names.member_doc(entry.value, name)) for name, value in entry.members.items()]
        for name, value, text in texts:
            if len(text.split()) < (SHORTEST_PROPERTY if isinstance(value, property) else SHORTEST):
                yield name, len(text.split())


def test_docstrings_are_more_than_a_name():
    short = [f"{name} ({count})" for name, count in short_docstrings(INVENTORY)]
    assert not short, f"{len(short)} docstrings have fewer than {SHORTEST} words ({SHORTEST_PROPERTY} for a property): {', '.join(short)}"


def test_a_short_docstring_is_found():
    class Short:
        """Too few words."""

        def method(self):
            """Too few words."""

        def long(self):
            """This one has the words that the bound asks for, and even some more."""

        @property
        def value(self):
            """The value that it has."""

    entries = {"pyflame.Short": names.Entry("pyflame.Short", Short)}
    assert list(short_docstrings(entries)) == [("pyflame.Short", 3), ("pyflame.Short.method", 3)]


ERRORS = re.compile(r"error|raise|refus|\bfails?\b|warns", re.IGNORECASE)


def takes_arguments(value):
    """Whether a function has a parameter, or a class of the package a constructor of its own with one."""
    if inspect.isclass(value):
        makers = [f for f in (vars(value).get("__init__"), vars(value).get("__new__")) if f is not None]
        return any(takes_arguments(getattr(f, "__func__", f)) for f in makers)
    compiled = getattr(value, "__nb_signature__", None)
    if compiled:
        inside = [re.match(r"def \w+\((.*)\)", s[0], re.DOTALL)[1] for s in compiled]
        return any(word.strip() not in ("", "self", "self, /") for word in inside)
    if not hasattr(value, "__code__") and not hasattr(value, "__wrapped__"):
        return False  # a method of C that Python gives to every class, such as object.__init__
    return any(name not in ("self", "cls") for name in inspect.signature(value).parameters)


def silent_on_errors(entries):
    """Each public function with a parameter, and each class whose constructor has one of its own, with no word on errors in its docstring."""
    for path, entry in entries.items():
        if entry.kind != "data" and takes_arguments(entry.value) and not ERRORS.search(names.doc_of(entry.value)):
            yield path


def test_docstrings_say_what_raises():
    silent = set(silent_on_errors(INVENTORY))
    assert not silent, f"say which argument raises which error, or that nothing is raised: {', '.join(sorted(silent))}"


def test_a_docstring_without_a_word_on_errors_is_found():
    def of_one(x):
        """The argument, as it is."""

    def told(x):
        """The argument, as it is. Raises ValueError for 0."""

    def of_none():
        """The number 1, whatever else happens."""

    class Made:
        """What is made of a number."""

        def __init__(self, number):
            self.number = number

    class Empty:
        """What is made of nothing."""

        def __init__(self):
            self.number = 0

    class Inherits(Made):
        """What has the constructor of another class."""

    entries = {v.__name__: names.Entry(v.__name__, v) for v in (of_one, told, of_none, Made, Empty, Inherits, pyflame.neg)}
    assert list(silent_on_errors(entries)) == ["of_one", "Made"]
    assert takes_arguments(pyflame.neg) and takes_arguments(pyflame.linalg.qr) and not takes_arguments(pyflame.cuda_device_count)


def test_what_has_none_is_found():
    class Without:
        def method(self):
            pass

        @property
        def value(self):
            """A value."""

    entries = {"pyflame.Without": names.Entry("pyflame.Without", Without), "pyflame.f": names.Entry("pyflame.f", types.FunctionType((lambda: None).__code__, {}))}
    assert list(names.without_docstring(entries)) == ["pyflame.Without", "pyflame.Without.method", "pyflame.f"]


def test_a_method_has_the_docstring_of_the_base_class():
    assert names.member_doc(pyflame.nn.Linear, "forward") == names.member_doc(pyflame.nn.Module, "forward") != ""


def failures(path, doc):
    """What went wrong in the examples of a docstring: a text, empty if nothing did; and how many examples there are."""
    said = []
    examples = doctest.DocTestParser().get_doctest(doc, {"pf": pyflame, "nn": pyflame.nn, "F": pyflame.nn.functional, "optim": pyflame.optim}, path, None, 0)
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(examples, out=said.append)
    return "".join(said), len(examples.examples)


def test_examples_in_docstrings_print_what_they_say():
    docs = {path: names.doc_of(entry.value) for path, entry in INVENTORY.items() if entry.kind != "data"}
    docs.update({f"{path}.{name}": names.member_doc(entry.value, name) for path, entry in INVENTORY.items() for name in entry.members})
    found = {path: failures(path, doc) for path, doc in docs.items() if ">>>" in doc}
    assert sum(count for _, count in found.values()) >= 16
    assert not any(said for said, _ in found.values()), "\n".join(said for said, _ in found.values())


def test_an_example_that_is_wrong_is_found():
    assert failures("right", ">>> pf.ones(1).item()\n1.0") == ("", 1)
    said, count = failures("wrong", ">>> pf.ones(1).item()\n2.0")
    assert count == 1 and "Expected:\n    2.0\nGot:\n    1.0" in said


def test_every_public_name_has_an_example():
    missing = sorted(uses.without(INVENTORY))
    assert not missing, f"a public name needs an example in a page of docs that runs (docs/examples), or in examples: {', '.join(missing)}"


def test_a_name_without_an_example_is_found():
    entries = {path: names.Entry(path, types.FunctionType((lambda: None).__code__, {})) for path in ("pyflame.no_such_name", "pyflame.add")}
    assert uses.without(entries) == {"pyflame.no_such_name"}


def test_where_an_example_is_found():
    found = uses.paths_in("import pyflame as pf\nfrom pyflame import nn\npf.randn(3)\nnn.functional.relu(x)\nother.randn(3)\npf.randn(4)\n")
    assert found["pyflame.randn"] == 3 and found["pyflame.nn.functional.relu"] == 4 and "other.randn" not in found


def test_an_example_is_linked_by_its_section():
    text = "# Page\n\n## One `x`, two\n\n```python\n# no heading\n```\n\n## Same\n\n### Same\n"
    assert uses.headings_of(text) == [(3, "One `x`, two", "#one-x-two"), (9, "Same", "#same"), (11, "Same", "#same-1")]
    title, link = uses.uses(INVENTORY)["pyflame.heaviside"][0]
    assert (title, link) == ("Arithmetic, element by element: Signs", "../../docs/examples/arithmetic.md#signs")


def test_modules_that_are_imported_with_the_package_are_public():
    listed = names.module_names(pyflame)
    assert {"pyflame.linalg", "pyflame.fft", "pyflame.nn.functional"} <= set(listed) and len(listed) == len(set(listed))
    assert "pyflame.linalg.svd" in INVENTORY and "pyflame._functions" not in listed
