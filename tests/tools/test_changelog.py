"""CHANGELOG.md can be read: what was added is in groups by area, each of a length that one reads."""
import pathlib
import re

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
MOST_UNGROUPED, MOST_IN_A_GROUP = 40, 40


def groups(text):
    """{heading: number of entries} of the first "### Added"; "" is what stands before the first group."""
    added = re.split(r"^#{2,3} ", text.split("\n### Added\n", 1)[1], flags=re.M)[0]
    parts = re.split(r"^#### (.*)$", added, flags=re.M)
    return {heading: len(re.findall(r"^- ", body, re.M)) for heading, body in zip(["", *parts[1::2]], parts[::2])}


def test_what_was_added_is_grouped():
    found = groups(TEXT)
    assert len(found) > 10 and found.pop("") <= MOST_UNGROUPED, "move entries from the top of Added below the heading of their area"
    assert all(0 < n <= MOST_IN_A_GROUP for n in found.values()), found


def test_groups_are_counted():
    assert groups("# x\n\n### Added\n- a\n  b\n- c\n\n#### One\n- d\n  - e\n\n### Fixed\n- f\n") == {"": 2, "One": 1}
