"""Looks at ten pages of the built site in a headless Chromium: browser.py FOLDER.

It fails for a page that scrolls sideways in a window of 400 pixels, and for a message of level error on the page's console. It exits with 77 and says
why where there is no Playwright or no Chromium.
"""
import contextlib
import glob
import os
import pathlib
import shutil
import sys

SKIP = 77
PAGES = ["index.html", "README.html", "docs/install.html", "docs/from-pytorch.html", "docs/cli.html", "docs/env.html", "docs/doctor-rules.html",
         "reference/python/pyflame-1.html", "reference/python/pyflame.nn.html", "reference/cpp/ops-ops.html"]
WIDTH = 400  # pixels


def browser_program():
    """A Chromium of the system; None where Playwright has one of its own, or none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def problems_of(folder, browser):
    page = browser.new_page(viewport={"width": WIDTH, "height": 800})
    messages = []
    page.on("console", lambda m: messages.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: messages.append(str(e)))
    for name in PAGES:
        if not (folder / name).is_file():
            yield f"{name}: there is no such page"
            continue
        messages.clear()
        page.goto((folder / name).resolve().as_uri(), wait_until="load")
        have = page.evaluate("document.documentElement.scrollWidth")
        if have > WIDTH:
            widest = page.evaluate("""w => [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > w)
                .slice(0, 3).map(e => e.tagName + '.' + e.className).join(', ')""", WIDTH)
            yield f"{name}: scrolls sideways; got {have} pixels; expected at most {WIDTH}; hint: {widest}"
        for message in messages:
            yield f"{name}: the console says: {message}"


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
    with chromium("the site") as browser:
        if browser is None:
            return SKIP
        problems = list(problems_of(pathlib.Path(argv[0]), browser))
    for problem in problems:
        print(f"site: {problem}", file=sys.stderr)
    print(f"site: {len(PAGES)} pages looked at in a browser {WIDTH} pixels wide; {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
