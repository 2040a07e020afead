"""The pictures of the tutorials: up to date, readable on a telephone, and on a page."""
import pathlib
import re
import sys
import xml.etree.ElementTree as ET

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import gen_pictures  # noqa: E402
from picture import Picture  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
# Of a letter of Helvetica and Arial, at most, in units of the size: digits and small letters have 0.56, some capitals 0.72.
LETTER, LETTER_OF_CODE = 0.58, 0.62


def overhangs(text, width):
    """The texts of a picture that do not fit into its width, by an estimate of their lengths."""
    found = []
    for t in ET.fromstring(text).iter(SVG + "text"):
        long = len(t.text) * float(t.get("font-size")) * (LETTER_OF_CODE if t.get("font-family") == "monospace" else LETTER)
        x = float(t.get("x")) - {"start": 0, "middle": 0.5, "end": 1}[t.get("text-anchor")] * long
        if x < 0 or x + long > width:
            found.append(t.text)
    return found


@pytest.mark.parametrize("name", gen_pictures.PICTURES)
def test_a_picture(name):
    text = gen_pictures.PICTURES[name]()
    assert (ROOT / "docs" / "images" / f"{name}.svg").read_text(encoding="utf-8") == text, "run `make docs`"
    svg = ET.fromstring(text)
    assert int(svg.get("width")) <= 400 and svg.find(SVG + "title").text
    sizes = [float(t.get("font-size")) for t in svg.iter(SVG + "text")]
    assert min(sizes) >= 12, "it is shown 360 pixels wide on a telephone"
    assert overhangs(text, int(svg.get("width"))) == []


def test_texts_that_do_not_fit_are_found():
    p = Picture(100, 50, "a < b")
    p.text(10, 20, "fits < it")
    p.text(60, 40, "does not fit")
    assert overhangs(p.done(), 100) == ["does not fit"]


def test_each_picture_is_on_a_page():
    pages = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "docs").rglob("*.md"))
    assert [name for name in gen_pictures.PICTURES if not re.search(rf"!\[[^\]]+\]\([./]*images/{name}\.svg\)", pages)] == []


def test_a_stale_file_fails_the_check(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gen_pictures, "ROOT", tmp_path)
    monkeypatch.setattr(gen_pictures, "PICTURES", {"window": gen_pictures.window})
    (tmp_path / "docs" / "images").mkdir(parents=True)
    assert gen_pictures.main(["--check"]) == 1 and "docs/images/window.svg: not what" in capsys.readouterr().err
    assert gen_pictures.main([]) == 0 and gen_pictures.main(["--check"]) == 0
