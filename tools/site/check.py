"""Follows every link and anchor of the built site: check.py FOLDER.

It fails for a link to a page, a file or an anchor that does not exist, for a script, style sheet, font or image that another server would have to
send, and for a page that is larger than LARGEST.
"""
import functools
import html.parser
import pathlib
import re
import sys
import urllib.parse

LARGEST = 1_500_000  # bytes of one page
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
# Tags of which nothing but a class is said: most are the colours of code. Without them a page is read in a sixth of the time. What a script holds is no HTML,
# and neither is the text of a style sheet, so these tags stay.
PLAIN = re.compile(r'</?(?!script|style)[a-z][a-z0-9]*(?: class="[^"<>]*")?>')
NOT_LOADED = {"canonical", "next", "prev", "index", "search", "author", "copyright", "alternate", "top", "up"}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(PLAIN.sub("", text))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.anchors.update(v for v in (values.get("id"), values.get("name") if tag == "a" else None) if v)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in LOADED and values.get(LOADED[tag]) and not (tag == "link" and set((values.get("rel") or "").split()) & NOT_LOADED):
            self.loaded.append(values[LOADED[tag]])


def html_files(folder):
    """The pages: what themes keep below _static are pieces of their own."""
    return [p for p in sorted(folder.rglob("*.html")) if "_static" not in p.relative_to(folder).parts]


def is_other_server(address):
    return re.match(r"(https?:)?//", address) is not None


@functools.lru_cache(maxsize=None)
def target_of(folder, base, path):
    """What a path of a link means on pages in the folder `base` of the site: (the file's path in the site, whether it exists)."""
    target = (pathlib.PurePosixPath(base) / path).as_posix()
    target = pathlib.Path(re.sub(r"[^/]+/\.\./", "", target)) if ".." not in target else (folder / target).resolve().relative_to(folder.resolve())
    target = target.as_posix()
    if target in (".", "") or (folder / target).is_dir():
        target = (target + "/index.html").lstrip("./")
    return target, (folder / target).is_file()


def problems_of(folder):
    target_of.cache_clear()  # files may have changed
    pages = {p.relative_to(folder).as_posix(): Page(p.read_text(encoding="utf-8")) for p in html_files(folder)}
    if "index.html" not in pages:
        yield f"{folder}: there is no index.html"
    for name, page in pages.items():
        size = (folder / name).stat().st_size
        if size > LARGEST:
            yield f"{name}: has {size} bytes; at most {LARGEST}"
        for address in page.loaded:
            if is_other_server(address):
                yield f"{name}: loads {address} from another server"
        base = pathlib.PurePosixPath(name).parent.as_posix()
        for address in dict.fromkeys([*page.links, *page.loaded]):
            parts = urllib.parse.urlsplit(address)
            if parts.scheme or is_other_server(address):
                continue
            path = urllib.parse.unquote(parts.path)
            target, exists = target_of(folder, base, path) if path else (name, True)
            if not exists:
                yield f"{name}: {address} does not exist"
            elif parts.fragment and target in pages and urllib.parse.unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {address}: that page has no such anchor"
    for sheet in sorted(folder.rglob("*.css")):
        for address in re.findall(r"(?:url\(|@import\s+)['\"]?([^'\")\s]+)", sheet.read_text(encoding="utf-8")):
            if is_other_server(address):
                yield f"{sheet.relative_to(folder)}: loads {address} from another server"


def main(argv):
    folder = pathlib.Path(argv[0])
    problems = list(dict.fromkeys(problems_of(folder)))
    for problem in problems[:100]:
        print(f"site: {problem}", file=sys.stderr)
    sizes = sorted(p.stat().st_size for p in html_files(folder))
    if sizes:
        print(f"site: {len(sizes)} pages, {sizes[len(sizes) // 2] // 1000} kB in the middle, {sizes[-1] // 1000} kB the largest; {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
