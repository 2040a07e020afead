"""Talks to the page of `pyflame serve` in a headless Chromium: chat_page.py --python PYTHON. PYTHON has the package.

It starts a server with a small random model and a key. It fails where the page does not do what a person would expect of it, where its console has an error, or where it
scrolls sideways in a window of 400 pixels. It exits with 77 and says why where there is no Playwright or no Chromium.
"""
import argparse
import contextlib
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


def talk(page, address):
    """What a person does, in this order. An AssertionError says what is not as expected."""
    page.goto(address, wait_until="load")

    def text_of(selector):
        return [e.inner_text() for e in page.query_selector_all(selector)]

    def until(condition, what):  # the page's policy refuses wait_for_function, which evaluates text inside of it
        end = time.monotonic() + WAIT
        while not page.evaluate(condition):
            assert time.monotonic() < end, f"not seen: {what}"
            page.wait_for_timeout(50)

    def send(text, by_enter=True):
        page.fill("#text", text)
        if by_enter:
            page.press("#text", "Enter")
        else:
            page.click("#send")

    until("document.getElementById('load').textContent.includes('API key is needed')", "the page asks for the key")
    send("hello")
    until("document.querySelectorAll('.error').length == 1", "an answer without the key")
    assert "key" in text_of(".error")[0], f"the error does not name the key: {text_of('.error')}"
    page.click("#clear")
    assert not text_of("#talk > *"), "Clear leaves messages"
    page.click("summary")
    page.fill("#key", "secret")
    page.fill("#tokens", "20")
    page.fill("#temperature", "0")
    send("the window is open")
    until("document.querySelectorAll('.numbers').length == 1", "the numbers below an answer")
    assert text_of(".user") == ["the window is open"] and text_of(".assistant")[0], "the question and its answer are shown"
    assert re.fullmatch(r"\d+ tokens read, \d+ written, first after [\d.]+ s(, [\d.]+ tokens/s)?", text_of(".numbers")[0]), text_of(".numbers")
    until("/running.*cache/.test(document.getElementById('load').textContent)", "the load")
    assert text_of("#model") != ["PyFlame"], "the model's name is shown"
    send(MARKUP, by_enter=False)
    until("document.querySelectorAll('.numbers').length == 2", "the second answer")
    assert text_of(".user")[1] == MARKUP and page.title() == "PyFlame" and not page.query_selector("#talk img"), "what a person writes stays text"
    page.fill("#text", "one line")
    page.press("#text", "Shift+Enter")
    assert len(text_of(".user")) == 2 and page.input_value("#text") == "one line\n", "Shift and Enter begin a line"
    page.fill("#tokens", "100000")
    page.fill("#temperature", "1")
    is_idle = "document.getElementById('send').textContent == 'Send'"
    for i in range(50):  # the model may end an answer at any token, also before Stop is pressed
        send(f"a long answer, number {i}")
        until(f"document.querySelectorAll('.assistant')[{2 + i}]?.textContent.length > 20 || {is_idle}", "a long answer")
        before = len(text_of(".numbers"))
        if not page.evaluate(is_idle):
            page.click("#send")
            until(is_idle, "the end of an answer after Stop")
            if len(text_of(".numbers")) == before:
                break
    else:
        raise AssertionError("no answer was long enough to be stopped")
    until("document.getElementById('load').textContent.startsWith('0 running')", "the server has stopped writing it")
    have = page.evaluate("document.documentElement.scrollWidth")
    assert have <= page_checks.NARROW, f"the page scrolls sideways; got {have} pixels; expected at most {page_checks.NARROW}"


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
