"""Several versions of the site beside each other, in folders that are named after them: versions.py FOLDER [URL].

It writes FOLDER/versions.json, the list that the switch on each page reads, and FOLDER/index.html, which leads to the newest version. URL is the address
at which FOLDER is served, `/` if that is the root of a server. `build.py --versions FOLDER` adds a version. Versions that were put there before stay as they are.
"""
import json
import pathlib
import re
import shutil
import sys

FIRST_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>PyFlame</title><link rel="icon" href="{newest}/_static/favicon.svg"><meta http-equiv="refresh" content="0; url={newest}/index.html"></head>
<body><a href="{newest}/index.html">PyFlame {newest}</a></body></html>
"""


def found(folder):
    """The versions of a folder, the newest first."""
    names = [p.parent.name for p in folder.glob("*/index.html") if re.fullmatch(r"\d+(\.\d+)*", p.parent.name)]
    return sorted(names, key=lambda name: tuple(map(int, name.split("."))), reverse=True)


def write(folder, url="/"):
    names = found(folder)
    if not names:
        raise SystemExit(f"versions: {folder} has no version; expected folders such as 0.1.0 with an index.html")
    if not url.endswith("/"):
        raise SystemExit(f"versions: the address does not end with /; got {url!r}")
    entries = [{"name": name + (" (newest)" if name == names[0] else ""), "version": name, "url": f"{url}{name}/", "preferred": name == names[0]} for name in names]
    (folder / "versions.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(FIRST_PAGE.format(newest=names[0]), encoding="utf-8")


def add(folder, version, site, url="/"):
    """Puts a built site into the folder, in place of what was there of this version."""
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.copytree(site, folder / version)
    write(folder, url)


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]), *sys.argv[2:3])
