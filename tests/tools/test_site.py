"""The documentation site's own checks (tools/site): what must fail does, and what the site says is public has a text."""
import fnmatch
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "site"))

import arguments  # noqa: E402
import build  # noqa: E402
import check  # noqa: E402
import cpp_comments  # noqa: E402
import cpp_reference  # noqa: E402
import python_reference  # noqa: E402
import versions  # noqa: E402


def folder_with(tmp_path, body):
    (tmp_path / "docs").mkdir()
    (tmp_path / "index.html").write_text(f"<html><body id='top'>{body}</body></html>")
    (tmp_path / "docs" / "a.html").write_text("<html><h1 id='title'>A</h1><a href='../index.html#top'>back</a></html>")
    return list(check.problems_of(tmp_path))


@pytest.mark.parametrize("body", ["<a href='docs/a.html#title'>a</a>", "<a href='#top'>top</a>", "<a href='https://example.org/x'>other</a>", "<a href='docs/a.html'>a</a>"])
def test_links_that_lead_somewhere(tmp_path, body):
    assert folder_with(tmp_path, body) == []


@pytest.mark.parametrize("body, said", [
    ("<a href='docs/b.html'>b</a>", "docs/b.html does not exist"),
    ("<a href='docs/a.html#nowhere'>a</a>", "no such anchor"),
    ("<a href='#nowhere'>a</a>", "no such anchor"),
    ("<img src='docs/b.svg'>", "docs/b.svg does not exist"),
    ("<script src='https://example.org/x.js'></script>", "from another server"),
])
def test_links_that_lead_nowhere(tmp_path, body, said):
    found = folder_with(tmp_path, body)
    assert len(found) == 1 and said in found[0]


def test_only_tags_that_say_nothing_are_left_out(tmp_path):
    """Links and anchors are found between the colours of code; a script that holds the text of a tag has no link."""
    body = """<pre><span class="k">if</span> <span id="here">x</span><a class="headerlink" href="#nowhere">#</a><a class="headerlink" href="#here">#</a></pre>
<script>const text = "<b class='k'><a href='docs/none.html'>";</script><style>p::before { content: "<a href='docs/none.css'>"; }</style><p class="k"><b><img class="k" src="docs/none.svg"></b></p>"""
    assert folder_with(tmp_path, body) == ["index.html: #nowhere: that page has no such anchor", "index.html: docs/none.svg does not exist"]


def test_a_site_without_a_first_page(tmp_path):
    assert any("no index.html" in p for p in check.problems_of(tmp_path))


def test_a_page_with_a_link_to_no_file(tmp_path):
    staging = build.Staging(tmp_path)
    with pytest.raises(SystemExit, match="README.md links to docs/no-such-page.md, which does not exist"):
        staging.with_links("[a page](docs/no-such-page.md)", "README.md")


def test_links_in_code_stay_as_they_are(tmp_path):
    staging = build.Staging(tmp_path)
    text = "`x[0](docs/no-such-page.md)`\n\n```python\ny[0](docs/no-such-page.md)\n```\n"
    assert staging.with_links(text, "README.md") == text


def test_every_page_has_a_group():
    import json

    navigation = json.loads((ROOT / "tools" / "site" / "navigation.json").read_text())
    grouped = [page for group in navigation for page in build.pages_of(group)]
    assert len(grouped) == len(set(grouped))
    pages = {p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")}
    assert len(pages) > 30 and pages <= set(grouped)


TUTORIALS = [*sorted(p.relative_to(ROOT).as_posix() for p in (ROOT / "docs" / "tutorials").glob("*.md")), "docs/tune-for-pytorch.md"]


@pytest.mark.parametrize("name", TUTORIALS)
def test_a_tutorial_has_a_picture_and_a_script(tmp_path, name):
    staging = build.Staging(tmp_path)
    staging.page(name, True)
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert re.search(r"!\[[^]]+\]\([^)]+\.svg\)", text), "no picture"
    file = re.search(r"\{download\}`(\S+) <\1>`", text)[1]
    code = (tmp_path / name).with_name(file).read_text(encoding="utf-8")
    assert len(code.splitlines()) > 3
    if file.endswith(".py"):
        compile(code, file, "exec")
    else:
        assert subprocess.run(["bash", "-n"], input=code, text=True, capture_output=True).returncode == 0


def version_of(folder, name):
    (folder / name).mkdir(parents=True)
    (folder / name / "index.html").write_text(name)


def test_versions_beside_each_other(tmp_path):
    import json

    for name in ("0.9.0", "0.10.0", "notes"):
        version_of(tmp_path, name)
    versions.write(tmp_path, "/pyflame/")
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [(v["version"], v["url"], v["preferred"]) for v in listed] == [("0.10.0", "/pyflame/0.10.0/", True), ("0.9.0", "/pyflame/0.9.0/", False)]
    assert "url=0.10.0/index.html" in (tmp_path / "index.html").read_text()
    version_of(tmp_path / "built", "")
    versions.add(tmp_path, "0.10.0", tmp_path / "built")
    assert (tmp_path / "0.10.0" / "index.html").read_text() == "" and (tmp_path / "0.9.0" / "index.html").read_text() == "0.9.0"


def test_versions_that_cannot_be_listed(tmp_path):
    with pytest.raises(SystemExit, match="has no version; expected folders such as 0.1.0 with an index.html"):
        versions.write(tmp_path)
    version_of(tmp_path, "0.1.0")
    with pytest.raises(SystemExit, match="the address does not end with /; got '/pyflame'"):
        versions.write(tmp_path, "/pyflame")


def test_a_header_names_code_that_includes_it():
    assert cpp_reference.programs_with("ops/ops.h")[0] == "examples/mnist_cnn.cpp" and cpp_reference.programs_with("no/such.h") == []
    assert "Code that uses it, which CI runs: [docs/" in cpp_reference.page("extension.h", "// Extensions.\n#pragma once\n")
    assert "Code that uses it" not in cpp_reference.page("no/such.h", "// Nothing.\n#pragma once\n")


def headers_of_the_reference():
    return [path for listed in cpp_reference.HEADERS.values() for path in listed]


@pytest.mark.parametrize("doc, first", [("A line; and more.", "A line."), ("A line:\n\n    code", "A line."), ("One. Two.", "One."), ("", ""),
                                        ("word " * 30, "word " * 23 + "…"), ("a" * 60 + ", " + "b" * 70, "a" * 60 + " …")])
def test_first_sentences_end_at_a_word(doc, first):
    assert python_reference.first_sentence(doc) == first


def test_every_installed_header_has_a_page_or_a_reason():
    installed, public = cpp_reference.installed(), headers_of_the_reference()
    assert len(installed) > 100 and not set(public) - set(installed)
    without = [p for p in installed if p not in public and cpp_reference.internal(p) is None]
    assert not without, f"installed headers that are neither in HEADERS nor in INTERNAL of tools/site/cpp_reference.py: {', '.join(without)}"


def test_reasons_are_of_installed_headers_without_a_page():
    installed, public = cpp_reference.installed(), headers_of_the_reference()
    assert len(public) == len(set(public)) and [p for p in public if cpp_reference.internal(p)] == []
    patterns = [p for _, listed in cpp_reference.INTERNAL for p in listed.split()]
    assert [p for p in patterns if not any(fnmatch.fnmatch(path, p) for path in installed)] == []


def test_a_header_of_a_public_folder_is_no_exemption_by_itself():
    assert [cpp_reference.internal(p) for p in ("ops/other.h", "runtime/other.h", "backends/other.h", "other.h")] == [None] * 4


def test_headers_of_examples_have_a_page():
    included = {path for file in (ROOT / "examples").rglob("*.cpp") for path in re.findall(r'#include [<"]pyflame/([^">]+)', file.read_text())}
    assert "ops/ops.h" in included and not included - set(headers_of_the_reference())


def test_declarations_of_public_headers_have_comments():
    lacking = cpp_comments.all_lacking()
    assert not lacking, f"declarations without a comment that says what they do: {lacking}"


def test_declarations_without_a_comment_are_found():
    text = """// A header.
#pragma once
#include <string>
#define BARE 1
// What it is for.
#define SAID 1

#define TABLE(x) int x;
#include "table.def"
namespace a {
struct Later;
// Two of them.
int first(int x);
const std::string& second(int x);

[[noreturn]] void bare_function(int x);
int with_it(int x,
            int y);  // on the last line
struct Bare {
  int method();
};
// A class.
template <class T>
class Said {
 public:
  int method() { return 1; }
};
template <class T>
T bare_template(T x) {
  // Inside.
  return x;
}
enum class BareEnum { a };
namespace detail {
int hidden(int x);
}
}  // namespace a
"""
    assert cpp_comments.lacking(text) == ["BARE", "bare_function", "Bare", "bare_template", "BareEnum"]


def test_common_arguments_are_explained_in_one_place():
    headings = re.findall(r"^## `(\w+)`$", (ROOT / "docs" / "common-arguments.md").read_text(), re.M)
    table = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "common-arguments.md").read_text(), re.M)
    assert set(table) == arguments.COMMON and set(headings) == arguments.COMMON - {"name"}
    assert set(re.findall(r"common-arguments\.md#(\w+)", python_reference.COMMON)) == set(headings)


def test_pages_of_the_reference_link_the_common_arguments():
    assert "(../../docs/common-arguments.md)" in python_reference.page("`pyflame.fft`", "Text.", [])
