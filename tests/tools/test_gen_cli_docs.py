"""tools/gen_cli_docs.py: the tables of options in docs/cli.md."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import gen_cli_docs  # noqa: E402


def test_every_place_of_the_page_is_filled():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    places = gen_cli_docs.PLACE.findall(page)
    assert [name for _, name, _ in places] == re.findall(r"<!-- options: (.*?) -->", page), "also names with a dash, such as inspect-model"
    assert page.count("| option | value |") == len(places)
