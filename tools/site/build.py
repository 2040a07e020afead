"""Builds the documentation site: build.py [--out build/site] [--python .venv/bin/python] [--versions FOLDER [--url URL]]. `make site` calls it.

The pages of the repository stay as they are, with links that work on a forge. They are copied beside each other, with the generated reference, into
build/site-src, and Sphinx makes HTML of them, with warnings as errors. A link to a file that is no page leads to a page that shows the file, so the site
needs no other server. tools/site/check.py follows every link and anchor of the result. With --versions, pages have a switch between versions, and the result is
also put into FOLDER, as tools/site/versions.py says.
"""
import argparse
import concurrent.futures
import glob
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import run_doc_blocks  # noqa: E402
import versions  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CODE = re.compile(r"(^(?P<fence>`{3,6}(?!`)|~{3,})[^\n]*\n.*?^(?P=fence)`*\s*?$|`[^`\n]+`)", re.M | re.S)
LANGUAGES = {".py": "python", ".cpp": "cpp", ".h": "cpp", ".json": "json", ".sh": "bash", ".txt": "text", ".csv": "text"}
IMAGES = (".svg", ".png", ".jpg")
SHOWN = 200_000  # bytes of a file that a page shows


class Staging:
    """The folder of sources that Sphinx reads."""

    def __init__(self, folder):
        self.folder, self.done, self.waiting = folder, set(), []

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def page(self, name, in_navigation):
        """A page of the repository; its links are followed later."""
        if name in self.done:
            return
        self.done.add(name)
        text = self.with_links((ROOT / name).read_text(encoding="utf-8"), name)
        if name.startswith("docs/tutorials/") or name == "docs/tune-for-pytorch.md":
            text += self.script(name)
        self.write(name, text if in_navigation else "---\norphan: true\n---\n" + text)

    def script(self, name):
        """Writes what CI runs of a page as one file beside it; the text with which the page offers it."""
        tasks = run_doc_blocks.runnable((ROOT / name).read_text(encoding="utf-8"))
        language, ending = ("python", ".py") if any(t[1] == "python" for t in tasks) else ("bash", ".sh")
        code = "\n".join(re.sub(r"\n{3,}", "\n\n", t[2].strip("\n")) + "\n" for t in tasks if t[1] == language)
        file = pathlib.PurePosixPath(name).stem + ending
        comment = f"# The code of {name}, which CI runs.\n"
        self.write(f"{os.path.dirname(name)}/{file}", comment + ("" if language == "python" else "set -eu\n") + "\n" + code)
        return f"\n\nThe code of this page as a script: {{download}}`{file} <{file}>`\n"

    def with_links(self, text, name):
        parts, last = [], 0
        for code in CODE.finditer(text):
            parts += [self.links_of(text[last:code.start()], name), code.group(0)]
            last = code.end()
        return "".join([*parts, self.links_of(text[last:], name)])

    def links_of(self, text, name):
        # A link's text may hold `code`, at which the text was cut; such a link is put together from its end alone.
        end = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")
        return end.sub(lambda m: m.group(1) + self.target(m.group(2), name) + m.group(3), text)

    def target(self, link, name):
        if re.match(r"\w+:", link):
            return link
        path = os.path.normpath(os.path.join(os.path.dirname(name), link))
        have = ROOT / path
        if (self.folder / path).is_file():  # of the reference
            return link
        if path.startswith("..") or not have.exists():
            raise SystemExit(f"site: {name} links to {link}, which does not exist")
        if have.suffix == ".md" and have.is_file():
            self.waiting.append(path)
            return link
        if have.suffix in IMAGES:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(have, self.folder / path)
            return link
        self.file(path)
        return link.rstrip("/") + ".md"

    def file(self, path):
        """A page that shows a file, or lists a folder."""
        if path + ".md" in self.done:
            return
        self.done.add(path + ".md")
        have = ROOT / path
        if have.is_dir():
            tracked = subprocess.run(["git", "ls-files", "--", path], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
            body = "Files of the repository in this folder:\n\n" + "\n".join(f"- `{os.path.relpath(t, path)}`" for t in tracked)
        else:
            text = have.read_text(encoding="utf-8", errors="replace")
            ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
            note = f"\n\nThe first {SHOWN} of {len(text)} characters." if len(text) > SHOWN else ""
            language = LANGUAGES.get(have.suffix, "text") if len(text) <= SHOWN else "text"
            body = f"{ticks}{language}\n{text[:SHOWN]}\n{ticks}{note}"
        self.write(path + ".md", f"---\norphan: true\n---\n# `{path}`\n\n{body}\n")


def title_of(path):
    match = re.search(r"^# (.*)$", path.read_text(encoding="utf-8"), re.M)
    return match.group(1).strip() if match else path.stem


def pages_of(group):
    """The pages of a group that exist; a pattern stands for all that no line names."""
    found = []
    for pattern in group["pages"]:
        if "*" in pattern:
            found += [p for p in sorted(os.path.relpath(f, ROOT) for f in glob.glob(str(ROOT / pattern))) if p not in found]
        elif pattern.startswith("reference/") or (ROOT / pattern).is_file():
            found.append(pattern)
    return found


def summary(path):
    """The first sentence below the title."""
    text = re.sub(r"<!--.*?-->", "", path.read_text(encoding="utf-8"), flags=re.S)
    below = text.partition("\n# ")[2] if not text.startswith("# ") else text
    for paragraph in re.split(r"\n\s*\n", below.partition("\n")[2]):
        paragraph = " ".join(paragraph.split())
        if paragraph and not paragraph.startswith(("#", "|", "`", "-", "!", ":", "<")):
            sentence = re.split(r"(?<=[.:])\s", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph), maxsplit=1)[0]
            return sentence.rstrip(":") if len(sentence) < 220 else ""
    return ""


def settings(folder):
    """What Sphinx needs beside the pages."""
    shutil.copytree(HERE / "static", folder / "_static")
    for name in ("conf.py", "search_order.js"):
        shutil.copyfile(HERE / name, folder / name)


def stage(folder, python):
    shutil.rmtree(folder, ignore_errors=True)
    staging = Staging(folder)
    navigation = json.loads((HERE / "navigation.json").read_text(encoding="utf-8"))
    of_python, of_cpp = folder / "reference" / "python", folder / "reference" / "cpp"
    with concurrent.futures.ThreadPoolExecutor() as pool:  # they write different files
        list(pool.map(lambda c: subprocess.run([python, str(HERE / c[0]), str(c[1])], check=True), [("uses.py", of_python), ("tried.py", of_python), ("cpp_reference.py", of_cpp)]))
    subprocess.run([python, str(HERE / "python_reference.py"), str(of_python)], check=True)
    for facts in ("uses.json", "tried.json"):
        (folder / "reference" / "python" / facts).unlink()
    grouped = {page for group in navigation for page in pages_of(group)}
    missing = {os.path.relpath(p, ROOT) for p in glob.glob(str(ROOT / "docs" / "**" / "*.md"), recursive=True)} - grouped
    if missing:
        raise SystemExit(f"site: no group of tools/site/navigation.json has {', '.join(sorted(missing))}")
    for page in sorted(grouped):
        if not page.startswith("reference/"):
            staging.page(page, True)
    generated = [os.path.relpath(p, folder) for p in glob.glob(str(folder / "reference" / "**" / "*.md"), recursive=True)]
    for page in generated:
        staging.write(page, staging.with_links((folder / page).read_text(encoding="utf-8"), page))
    while staging.waiting:
        staging.page(staging.waiting.pop(), False)
    for group in navigation:
        pages = pages_of(group)
        rows = []
        for page in pages:
            place = folder / page
            what = summary(place)
            rows.append(f"| [{title_of(place)}]({page}) | {'' if page.startswith('reference/') else re.sub(r'[|]', '', what)} |")
        text = "\n".join([f"# {group['title']}", "", group["text"], "", "```{toctree}", ":hidden:", "", *[p[:-3] for p in pages], "```", "", "| page | |", "|---|---|", *rows, ""])
        staging.write(group["name"] + ".md", text)
    toctree = "\n".join(["", "```{toctree}", ":hidden:", "", *[g["name"] for g in navigation], "```", ""])
    index = (HERE / "index.md").read_text(encoding="utf-8")
    staging.write("index.md", staging.with_links(index, "tools/site/index.md").replace("](../../", "](") + toctree)
    settings(folder)


def sphinx(source, out, version, switch):
    """Makes HTML of the staged pages; the exit code. With `switch` pages have a switch between versions."""
    environment = dict(os.environ, PYFLAME_SITE_VERSION=version, PYFLAME_SITE_VERSIONS="1" if switch else "")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going", "-j", "2", "-d", str(source) + "-doctrees", str(source), str(out)]
    return subprocess.run(command, env=environment).returncode


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "site")
    parser.add_argument("--python", default=str(ROOT / ".venv" / "bin" / "python"), help="one that has pyflame")
    parser.add_argument("--versions", type=pathlib.Path, help="the folder of all versions that are served")
    parser.add_argument("--url", default="/", help="the address at which that folder is served, with / at its end")
    arguments = parser.parse_args(argv)
    start = time.monotonic()
    source = arguments.out.with_name(arguments.out.name + "-src")
    stage(source, arguments.python)
    shutil.rmtree(arguments.out, ignore_errors=True)
    version = os.environ.get("PYFLAME_SITE_VERSION") or re.search(r'"([\d.]+)"', (ROOT / "src" / "pyflame" / "version.h").read_text(encoding="utf-8")).group(1)
    if sphinx(source, arguments.out, version, bool(arguments.versions)):
        return 1
    if subprocess.run([sys.executable, str(HERE / "check.py"), str(arguments.out)]).returncode:
        return 1
    if arguments.versions:
        versions.add(arguments.versions, version, arguments.out, arguments.url)
    print(f"site: {arguments.out} in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
