"""docs/optimization-guide.md: each advice has a reason, a gain, a rule of pyflame doctor that exists, a source, and tests that exist."""
import ast
import functools
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "optimization-guide.md").read_text(encoding="utf-8")
RULES = {rule["id"]: rule for rule in json.loads((ROOT / "src" / "tools" / "doctor" / "rules.json").read_text(encoding="utf-8"))["rules"]}
LINK = re.compile(r"\[([A-Z]+-\d+)\]\(doctor-rules\.md#([\w-]+)\)")
TEST = r"\[(test_\w+)\]\(\.\./(tests/[\w/]+\.py)\)"
TESTED = re.compile(rf"rule(?: only)?: \[([\w-]+)\]\(\.\./tests/doctor/test_advice\.py\)(?:; reason: {TEST})?")
NO_RULE = re.compile(rf"none(?:; test: {TEST})?")


def tables(text):
    """{heading: [cells of each row]}; a table has a row of names and one of dashes first."""
    found = {}
    for part in re.split(r"^#+ ", text, flags=re.M)[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        if lines:
            found[part.splitlines()[0]] = [[c.strip() for c in line.strip("|").split("|")] for line in lines[2:]]
    return found


def advice():
    return {heading: rows for heading, rows in tables(GUIDE).items() if not heading.startswith("What other")}


@pytest.mark.parametrize("word", ["RX 6000", "RX 7000", "RX 9000", "MI100", "MI200", "MI300X", "MI355X", "one GPU", "several GPUs", "Serving", "Measuring"])
def test_it_has_a_table_for(word):
    assert sum(word in heading for heading in advice()) == 1


def test_each_advice_is_whole():
    rows = [row for table in advice().values() for row in table]
    assert len(rows) > 30
    for row in rows:
        assert len(row) == 6 and all(row), row
        assert LINK.fullmatch(row[3]), row


def test_each_rule_exists_and_its_link_leads_to_it():
    links = LINK.findall(GUIDE)
    assert len(links) > 50
    for rule, anchor in links:
        assert rule in RULES and anchor.startswith(rule.lower() + "-"), rule


def test_what_other_guides_got_wrong_has_evidence():
    rows = next(rows for heading, rows in tables(GUIDE).items() if heading.startswith("What other"))
    assert len(rows) > 20
    for row in rows:
        assert len(row) == 5 and all(row), row
        assert LINK.fullmatch(row[4]) or NO_RULE.fullmatch(row[4]), row


@pytest.mark.parametrize(("guide", "least"), [("ROCm 6.3 reference", 30), ("AMD GPU optimization guide", 14), ("MI300X workload guide", 18), ("PyFlame ROCm backend manual", 8), ("kernel-optimization skill", 7)])
def test_each_of_the_five_guides_has_its_errors(guide, least):
    rows = next(rows for heading, rows in tables(GUIDE).items() if heading.startswith("What other"))
    said = [row[1] for row in rows if row[0].startswith(guide)]
    assert len(said) >= least and len(set(said)) == len(said)


def test_a_gain_is_published_or_said_to_be_missing():
    for table in advice().values():
        for row in table:
            assert re.search(r"\d|^none|right|true|third|tens of percent", row[2]), row


def test_issues_that_a_row_names_are_among_the_sources_of_its_rule():
    """So what a row says of a report cannot differ from what doctor says of it."""
    named = 0
    for heading, rows in tables(GUIDE).items():
        for row in rows:
            link, source = (row[4], row[3]) if heading.startswith("What other") else (row[3], row[4])
            for issue in re.findall(r"#\d+", source) if LINK.fullmatch(link) else []:
                named += 1
                assert re.search(re.escape(issue) + r"\b", RULES[LINK.fullmatch(link)[1]]["source"]), row
    assert named > 15


def test_a_measured_gain_names_what_it_was_measured_on():
    """A figure without the GPU, model or program that it is of is one that a reader takes for his own."""
    for heading, table in advice().items():
        for row in table:
            if re.search(r"\d (ms|times|%)", row[2]):
                assert re.search(r"gfx\d|version|model|request", row[2]), row


@functools.cache
def functions(path):
    """Names of the functions of a file of tests, as pytest collects them."""
    return {node.name for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def constant(path, name):
    """The value that a file of tests gives to a name, as a tree."""
    return next(node.value for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name)


def rules_of_cases():
    """{name of a case: the rule that it is of} of tests/doctor/test_advice.py, which runs doctor on each."""
    cases = constant("tests/doctor/test_advice.py", "CASES")
    return {key.value: value.args[0].value for key, value in zip(cases.keys, cases.values, strict=True)}


def test_each_advice_has_a_case_of_its_rule():
    cases, named = rules_of_cases(), []
    assert "test_advice" in functions("tests/doctor/test_advice.py")
    for table in advice().values():
        for row in table:
            tested = TESTED.fullmatch(row[5])
            assert tested, row
            assert cases[tested[1]] == LINK.fullmatch(row[3])[1], row
            named.append(tested[1])
    assert named == list(cases)  # one for each, in the order of the page


def test_the_test_of_a_reason_exists():
    found = [(row, TESTED.fullmatch(row[5])) for table in advice().values() for row in table]
    for row, tested in found:
        assert row[5].startswith("rule only: ") == (tested[2] is None), row
        assert tested[2] is None or tested[2] in functions(tested[3]), row
    assert sum(tested[2] is not None for _, tested in found) >= 10


def test_what_other_guides_got_wrong_is_tested_or_rests_on_its_evidence():
    """A rule has settings, or programs, for which it fires and others for which it does not."""
    settings = json.loads((ROOT / "tests" / "doctor" / "rule_cases.json").read_text(encoding="utf-8"))
    fires, silent = ({key.value: value for key, value in zip(tree.keys, tree.values, strict=True)} for tree in (constant("tests/doctor/test_lint.py", name) for name in ("FIRES", "SILENT")))
    tested = 0
    for row in next(rows for heading, rows in tables(GUIDE).items() if heading.startswith("What other")):
        link, none = LINK.fullmatch(row[4]), NO_RULE.fullmatch(row[4])
        if link and RULES[link[1]].get("lint"):
            assert fires[link[1]].elts and silent[link[1]].elts, row
        elif link:
            assert settings[link[1]]["fires"] and settings[link[1]]["quiet"], row
        elif none[1]:
            tested += 1
            assert none[1] in functions(none[2]), row
    assert tested >= 11
