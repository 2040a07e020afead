"""Looks at the built site in a headless Chromium: browser.py FOLDER. Of a folder of versions it looks at the newest.

tools/site/page_checks.py has the checks: widths, menu, light and dark, contrast, pictures, search, and the switch between versions, for which two small
sites are built. A message of level error on the console of a page is a problem, too. It exits with 77 and says why where there is no Playwright or no Chromium.
"""
import contextlib
import functools
import glob
import http.server
import os
import pathlib
import shutil
import sys
import tempfile
import threading
import time

import build
import page_checks
import versions

SKIP = 77
SECONDS = 40  # for the pages beyond the first twenty in a narrow window


def browser_program():
    """A Chromium of the system; None where Playwright has one of its own, or none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_):
        """A browser that goes to the next page leaves connections."""


@contextlib.contextmanager
def served(folder):
    """The address of a server of the folder, which ends with /."""
    with Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def two_versions(folder):
    """Two small sites beside each other, with the settings of the site."""
    for version in ("0.1.0", "0.2.0"):
        source = folder / f"source-{version}"
        source.mkdir()
        (source / "index.md").write_text("# PyFlame\n\n```{toctree}\nsecond\n```\n", encoding="utf-8")
        (source / "second.md").write_text(f"# Second page\n\nThis is {version}.\n", encoding="utf-8")
        build.settings(source)
        if build.sphinx(source, folder / f"site-{version}", version, switch=True):
            raise SystemExit(f"site: the small site of version {version} was not built")
        versions.add(folder / "served", version, folder / f"site-{version}")
    return folder / "served"


def look(page, folder, seconds, seed):
    """(problems, how many of the pages were looked at in a narrow window, as a text)."""
    problems = []
    page.on("console", lambda m: problems.append(f"{page.url}: the console says: {m.text} ({m.location['url']})") if m.type == "error" else None)
    page.on("pageerror", lambda e: problems.append(f"{page.url}: {e}"))
    problems += page_checks.blind(page)
    newest = next(iter(versions.found(folder)), "") if (folder / "versions.json").is_file() else ""
    with served(folder) as root:
        base, folder = root + newest + "/" * bool(newest), folder / newest
        for check in (page_checks.menu, page_checks.schemes, page_checks.search):
            began = time.monotonic()
            problems += check(page, base)
            print(f"site: {check.__name__}: {time.monotonic() - began:.0f} s")
        problems += page_checks.pictures(page, base, folder)
        walk = page_checks.narrow(page, base, folder, seconds, seed)
        seen = yield_all(walk, problems)
    with tempfile.TemporaryDirectory() as small, served(two_versions(pathlib.Path(small))) as base:
        problems += page_checks.versions(page, base)
    return problems, f"{seen} of {len(page_checks.html_pages(folder))}"


def yield_all(generator, problems):
    """Appends what the generator yields; the value that it returns."""
    while True:
        try:
            problems.append(next(generator))
        except StopIteration as end:
            return end.value


@contextlib.contextmanager
def chromium(what):
    """A headless Chromium, or None after a line that says why `what` was not looked at."""
    why, running = "Playwright is not installed", None
    with contextlib.ExitStack() as stack:
        try:
            from playwright.sync_api import Error, sync_playwright

            playwright, program = stack.enter_context(sync_playwright()), browser_program()
            if program or glob.glob(playwright.chromium.executable_path):
                try:
                    running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
                    stack.callback(running.close)
                except Error as e:
                    why = f"{program or 'Chromium'} does not start: {str(e).splitlines()[0]}"
            else:
                why = "there is no Chromium (apt-get install chromium, or playwright install chromium)"
        except ImportError:
            pass
        if running is None:
            print(f"!!! site: {what} was not looked at in a browser: {why}")
        yield running


def main(argv):
    folder = pathlib.Path(argv[0]).resolve()
    with chromium("the site") as browser:
        if browser is None:
            return SKIP
        problems, seen = look(browser.new_page(), folder, SECONDS, os.environ.get("PYFLAME_TEST_ROTATION") or time.time() // 86400)
    for problem in problems:
        print(f"site: {problem}", file=sys.stderr)
    print(f"site: {seen} pages looked at in a browser {page_checks.NARROW} pixels wide; {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
