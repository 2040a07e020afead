"""What pages and comments name exists: files and folders, links and their headings, make targets, commands, PYFLAME_ variables, the doctor's
rules, and each function that a table of ARCHITECTURE.md puts into a file."""
import collections
import fnmatch
import functools
import posixpath
import re

from common import Finding, lines, tracked

SOURCES = (".h", ".cpp", ".def", ".hip", ".py", ".cmake")
MAPS = ("ARCHITECTURE.md", "CONTRIBUTING.md")  # here every path is one of the repository
MADE = ("build/", "hwy/")  # by builds, by others
TEMPLATES = "tools/results/"  # of pages, with links from where those lie
SPAN = re.compile(r"`([^`]+)`")
PATH = re.compile(r"(?:[\w.*<>+-]+/)+[\w.*<>+-]*|[\w*-]+\.(?:h|cpp|def|py|json|css|md)")
IN_COMMENT = re.compile(r"(?<![\w./<\"-])((?:[\w-]+/)+[\w.-]+\.(?:h|cpp|def|py|json|md))\b")
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
VARIABLE = re.compile(r"\bPYFLAME_[A-Z0-9_]+\b")
RULE = re.compile(r"\b(?:ENV|SYS|LINT|FILE)-\d{2,3}\b")
NAME_IN_FILE = re.compile(r"^\| `([\w.:]+)(?:\([^`]*)?` \| `([^`]+)` \|")


class Tree:
    """What there is to be named."""

    def __init__(self, root):
        self.root, self.files = root, tracked(root)
        self.folders = {parent for f in self.files for parent in self._parents(f)}
        self.top = {f.split("/")[0] for f in self.folders}
        self.layers = {f.split("/")[2] for f in self.folders if f.startswith(("src/pyflame/", "src/tools/")) and f.count("/") == 2}
        self.targets = set(re.findall(r"^([\w-]+):", self.text("Makefile"), re.M))
        self.commands = set(re.findall(r"^## pyflame (\w+)", self.text("docs/cli.md"), re.M))
        self.rules = set(re.findall(r'"id": "([\w-]+)"', self.text("src/tools/doctor/rules.json")))
        named = (self.text(f) for f in self.files if not f.endswith((".md", ".json", ".txt", ".png")))
        self.variables = {v for text in named for v in VARIABLE.findall(text)} | set(re.findall(r"\((PYFLAME_\w+)", self.text("src/pyflame/base/env.def")))

    @staticmethod
    def _parents(name):
        while "/" in name:
            name = name.rsplit("/", 1)[0]
            yield name

    @functools.lru_cache(None)
    def text(self, name):
        return "\n".join(lines(self.root, name)) if (self.root / name).is_file() else ""

    @functools.lru_cache(None)
    def has(self, path):
        """Whether a file or folder has this name or ends with it; <family> and * match anything."""
        path = re.sub(r"<\w+>", "*", path.rstrip("/"))
        return any(fnmatch.fnmatchcase(have, pattern) for pattern in (path, "*/" + path) for have in (*self.files, *self.folders))

    @functools.lru_cache(None)
    def anchors(self, page):
        """The headings of a page as GitHub links them."""
        seen, found = collections.Counter(), set()
        for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", self.text(page), flags=re.S), re.M):
            anchor = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).strip().replace(" ", "-")
            found.add(f"#{anchor}-{seen[anchor]}" if seen[anchor] else f"#{anchor}")
            seen[anchor] += 1
        return found


def spans_of(tree, page, text):
    for span in SPAN.findall(text):
        if PATH.fullmatch(span) and not span.startswith(MADE) and (page in MAPS or span.split("/")[0] in tree.top and "/" in span) and not tree.has(span):
            yield f"no file or folder is called '{span}'"
        word = span.split()
        if len(word) > 1 and word[0] == "make" and word[1] not in tree.targets:
            yield f"the Makefile has no target '{word[1]}'"
        if len(word) > 1 and word[0] == "pyflame" and re.fullmatch("[a-z]+", word[1]) and word[1] not in tree.commands:
            yield f"there is no command '{span}'"


def links_of(tree, page, text):
    for target, anchor in LINK.findall(SPAN.sub("", text)):
        if re.match(r"\w+:", target):
            continue
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else page
        if path not in tree.files and path not in tree.folders:
            yield f"the link leads nowhere: '{target}'"
        elif anchor and anchor not in tree.anchors(path):
            yield f"'{path}' has no heading '{anchor}'"


def names_of(tree, page, text):
    for variable in VARIABLE.findall(text):
        if variable not in tree.variables and not variable.endswith("_"):
            yield f"nothing reads '{variable}'"
    for rule in RULE.findall(text):
        if rule not in tree.rules:
            yield f"the doctor has no rule '{rule}'"
    match = NAME_IN_FILE.match(text) if page == "ARCHITECTURE.md" else None
    if match and tree.has(match[2]) and not re.search(rf"\b{re.split(r'[.:]', match[1])[-1]}\b", tree.text(match[2])):
        yield f"'{match[2]}' has no '{match[1]}'"


def comment_of(name, line):
    match = re.search(r"(?:^|\s)\s*# .*" if name.endswith((".py", ".cmake")) else "//.*", line)
    return match[0] if match else ""


def check(root):
    tree, findings = Tree(root), []
    for name in tree.files:
        if name.endswith(".md") and name != "CHANGELOG.md" and not name.startswith(TEMPLATES):
            fenced = False
            for number, line in enumerate(lines(root, name), 1):
                fenced ^= line.lstrip().startswith("```")
                if not fenced:
                    findings += [Finding(name, number, text) for rule in (spans_of, links_of, names_of) for text in rule(tree, name, line)]
        elif name.endswith(SOURCES):
            for number, line in enumerate(lines(root, name), 1):
                for path in IN_COMMENT.findall(comment_of(name, line)):
                    if path.split("/")[0] in tree.layers | tree.top and not tree.has(path):
                        findings.append(Finding(name, number, f"no file is called '{path}'"))
    return findings
