"""docs/report.md lists each rule of report with its severity, in the table of the engine that has the rule."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def rules(*sources):
    """What the engine's source files have: (id, severity), each once."""
    text = "".join((ROOT / "src/tools/profile" / source).read_text(encoding="utf-8") for source in sources)
    found = re.findall(r'\.id = "([a-z0-9-]+)",\s*\.severity = Severity::(\w+)', text)
    assert len(found) == text.count(".id = "), "a rule has no severity of its own"
    return {(name, severity.upper()) for name, severity in found}


def tables():
    """The tables of the page that have an id and a severity in each row."""
    page = (ROOT / "docs/report.md").read_text(encoding="utf-8")
    for table in re.findall(r"^\| id \| severity \|.*\n\|---.*\n((?:\|.*\n)+)", page, re.M):
        rows = set()
        for line in table.splitlines():
            ids, severity = line.split("|")[1:3]
            rows |= {(name, severity.strip()) for name in re.findall("`([a-z0-9-]+)`", ids)}
        yield rows


@pytest.mark.parametrize("number, sources", [(0, ["advice_trace.cpp", "rank_views.cpp"]), (1, ["tuned_report.cpp"]), (2, ["advice_own.cpp"]), (3, ["advice_host.cpp"])])
def test_the_page_lists_each_rule_with_its_severity(number, sources):
    assert list(tables())[number] == rules(*sources)


def test_rules_about_tuning_files_can_be_told_apart():
    text = (ROOT / "src/tools/profile/tuned_report.cpp").read_text(encoding="utf-8")
    named = re.findall(r'\.id = "([a-z0-9-]+)",\s*\.severity = Severity::\w+,\s*\.title = "([^"]+)"', text)
    assert len({name for name, _ in named}) == len({title for _, title in named}) > 6
    assert all(name.startswith("tuning-") for name, _ in named)
