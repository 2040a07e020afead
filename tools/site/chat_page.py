"""Talks to the page of `pyflame serve` in a headless Chromium: chat_page.py --python PYTHON. PYTHON has the package.

It starts a server with a small random model and a key. It fails where the page does not do what a person would expect of it, where a text becomes HTML, where its console has
an error, where it scrolls sideways in a window of 400 pixels, or where a text has too little contrast in the light or the dark scheme. It exits with 77 and says why where there is no Playwright or no Chromium.
"""
import argparse
import contextlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import browser
import page_checks

WAIT = 60  # seconds
MARKUP = "<img src=x onerror=\"document.title='broken'\"> & <b>bold</b>"
BACKGROUND = "getComputedStyle(document.documentElement).backgroundColor"


@contextlib.contextmanager
def server(python, folder):
    """The address of a server. Its key is 'secret'."""
    subprocess.run([python, "-c", "import sys; from pyflame.testing.language_models import write_random_model as w; w(sys.argv[1], seed=3, max_position_embeddings=1 << 20)", folder], check=True)
    process = subprocess.Popen([python, "-m", "pyflame.llm.serving", "--model", folder, "--port", "0", "--api_key", "secret"], stderr=subprocess.PIPE, text=True)
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                yield found.group()
                break
        else:
            raise RuntimeError(f"chat_page: the server has ended; got {''.join(lines)}; expected its address")
    finally:
        process.terminate()
        process.communicate(timeout=60)


class Talk:
    """What a person does with the page, step by step. An AssertionError says what is not as expected."""

    def __init__(self, page):
        self.page, self.extra = page, {}
        page.route("**/v1/chat/completions", self._send_on)

    def _send_on(self, route):
        """The page's request goes on to the server, with the fields `extra` that make a model of random weights write what is wanted."""
        route.continue_(post_data=json.dumps({**route.request.post_data_json, **self.extra}))

    def texts(self, selector):
        return [e.inner_text() for e in self.page.query_selector_all(selector)]

    def until(self, condition, what):  # the page's policy refuses wait_for_function, which evaluates text inside of it
        end = time.monotonic() + WAIT
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"not seen: {what}"
            self.page.wait_for_timeout(20)

    def send(self, text, by_enter=True):
        self.page.fill("#text", text)
        if by_enter:
            self.page.press("#text", "Enter")
        else:
            self.page.click("#send")

    def answered(self, count):
        self.until(f"document.querySelectorAll('.numbers').length == {count}", f"the numbers below answer {count}")

    def key(self):
        """The page says that a key is needed; an answer without one is an error; with one it works."""
        self.until("document.getElementById('load').textContent.includes('API key is needed')", "the page asks for the key")
        self.send("hello")
        self.until("document.querySelectorAll('.error').length == 1", "an answer without the key")
        assert "key" in self.texts(".error")[0], f"the error does not name the key: {self.texts('.error')}"
        self.looks("with an error")
        self.page.click("#clear")
        assert not self.texts("#talk > *"), "Clear leaves messages"
        self.page.click("summary")
        self.page.fill("#key", "secret")

    def answer(self):
        self.page.fill("#tokens", "20")
        self.page.fill("#temperature", "0")
        self.send("the window is open")
        self.answered(1)
        assert self.texts(".user") == ["the window is open"] and self.texts(".assistant")[0], "the question and its answer are shown"
        assert re.fullmatch(r"\d+ tokens read, \d+ written, first after [\d.]+ s(, [\d.]+ tokens/s)?", self.texts(".numbers")[0]), self.texts(".numbers")
        self.until(r"/^\d+ running, \d+ waiting, (\d+ tokens[/]s, )?cache \d+ %$/.test(document.getElementById('load').textContent)", "the load")
        assert self.texts("#model") != ["PyFlame"], "the model's name is shown"

    def markup(self):
        """What a person writes stays text, and so does what the model writes."""
        self.page.fill("#tokens", "200")
        self.extra = {"guided_choice": [MARKUP]}
        self.send(MARKUP, by_enter=False)
        self.answered(2)
        self.extra = {}
        for who in (".user", ".assistant"):
            assert self.texts(who)[1] == MARKUP, f"{who}: got {self.texts(who)[1]!r}; expected {MARKUP!r}"
        made = self.page.evaluate("[...document.querySelectorAll('#talk *')].map((e) => e.tagName + '.' + e.className).filter((e) => !/^DIV[.](message (user|assistant)|numbers)$/.test(e))")
        assert not made and self.page.title() == "PyFlame", f"a text has become elements: {made}, and the title {self.page.title()!r}"

    def lines(self):
        self.page.fill("#text", "one line")
        self.page.press("#text", "Shift+Enter")
        assert len(self.texts(".user")) == 2 and self.page.input_value("#text") == "one line\n", "Shift and Enter begin a line"

    def stream(self):
        """A text that would not end for long arrives in parts, the load shows it, and Stop ends it."""
        self.page.fill("#tokens", "100000")
        self.page.fill("#temperature", "1")
        self.extra = {"min_tokens": 100000}
        self.send("a long answer")
        length = "document.querySelectorAll('.assistant')[2]?.textContent.length"
        seen = 0
        for part in range(5):
            self.until(f"{length} > {seen}", f"part {part} of a streamed text")
            seen = self.page.evaluate(length)
        self.until("/^1 running, .*[1-9][0-9]* tokens[/]s/.test(document.getElementById('load').textContent)", "the load of a text that is written")
        assert self.texts("#send") == ["Stop"], self.texts("#send")
        self.page.click("#send")
        self.until("document.getElementById('send').textContent == 'Send'", "the end of an answer after Stop")
        written = self.page.evaluate(length)
        self.until("document.getElementById('load').textContent.startsWith('0 running')", "the server has stopped writing it")
        assert self.page.evaluate(length) == written and len(self.texts(".numbers")) == 2, "a stopped answer goes on"
        assert not self.texts(".error"), f"Stop shows an error: {self.texts('.error')}"
        self.extra = {}

    def looks(self, what):
        """In light and in dark: the page fits a narrow window, and its texts can be read."""
        backgrounds = set()
        for scheme in ("dark", "light"):
            self.page.emulate_media(color_scheme=scheme)
            problems = [*page_checks.sideways(self.page, f"the page {what}"), *page_checks.contrast(self.page, f"the page {what} in the scheme {scheme}")]
            assert not problems, "; ".join(problems)
            backgrounds.add(self.page.evaluate(BACKGROUND))
        assert len(backgrounds) == 2, f"the page has one background in both schemes: {backgrounds}"


def talk(page, address):
    page.goto(address, wait_until="load")
    person = Talk(page)
    person.looks("at first")
    person.key()
    person.answer()
    person.markup()
    person.lines()
    person.stream()
    page.fill("#tokens", "5")
    person.send(2000 * "w")
    person.answered(3)
    person.looks("with a long word")


def main(argv):
    p = argparse.ArgumentParser()
    p.add_argument("--python", required=True)
    args = p.parse_args(argv)
    with browser.chromium("the page of `pyflame serve`") as chromium:
        if chromium is None:
            return browser.SKIP
        with tempfile.TemporaryDirectory() as folder, server(args.python, str(pathlib.Path(folder) / "small")) as address:
            page, messages = chromium.new_page(viewport={"width": page_checks.NARROW, "height": 800}), []
            page.on("console", lambda m: messages.append(m.text) if m.type == "error" else None)
            page.on("pageerror", lambda e: messages.append(str(e)))
            try:
                talk(page, address)
            except Exception as e:
                print(f"chat_page: not as expected: {e}")
                return 1
            unexpected = [m for m in messages if "401" not in m]  # of the requests without a key
            if unexpected:
                print("\n".join(f"chat_page: the console says: {m}" for m in unexpected))
                return 1
    print("chat_page: the page of `pyflame serve` does what it should in Chromium")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
