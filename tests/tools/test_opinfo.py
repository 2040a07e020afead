"""What tools/opinfo.py calls documented is on the page of differences."""
import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]


def opinfo():
    spec = importlib.util.spec_from_file_location("opinfo", ROOT / "tools/opinfo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_difference_is_on_its_page():
    page, tool = (ROOT / "docs/differences.md").read_text(), opinfo()
    said = {words for kind in tool.DOCUMENTED.values() for words in kind.values()} | {tool.COMPLEX}
    assert len(said) > 10 and [words for words in said if words not in page] == []


def test_what_is_documented_has_a_name():
    tool = opinfo()
    assert tool.documented("real", "sort") == tool.TIES and tool.documented("complex", "linalg.eigh") == tool.SIGNS and tool.documented("complex", "linalg.inv") is None
    assert tool.documented("complex", "softmax") == tool.COMPLEX and tool.documented("real", "exp") is None
