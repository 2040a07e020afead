"""What tools/site/browser.py looks at in the built site. Each check is a generator of problems, as texts."""
import json
import pathlib
import random
import re
import time

HERE = pathlib.Path(__file__).resolve().parent
CONTRAST, PICTURE_CONTRAST = ((HERE / name).read_text(encoding="utf-8") for name in ("contrast.js", "picture_contrast.js"))
PAGES = ["index.html", "README.html", "docs/install.html", "docs/from-pytorch.html", "docs/cli.html", "docs/env.html", "docs/doctor-rules.html",
         "reference/python/pyflame-1.html", "reference/python/pyflame.nn.html", "reference/cpp/ops-ops.html"]
NARROW, WIDE = 400, 1280  # pixels
# What one types, and the page and anchor that must be among the first three results.
SEARCHES = [
    ("layer_norm", "pyflame.layer_norm"),
    ("rocm", "docs/rocm.html"),
    ("all_reduce", "pyflame.distributed.all_reduce"),
    ("DataLoader", "pyflame.data.DataLoader"),
    ("pf.save", "#pyflame.save"),
    ("torch.nn.Conv2d", "#pyflame.nn.Conv2d"),
    ("install", "docs/install.html"),
    ("tuning", "docs/tuning.html"),
    ("slow GPU", "docs/"),
]
FIRST_RESULTS = "[...document.querySelectorAll('#search-results ul.search > li > a')].slice(0, 3).map(a => a.href)"


def html_pages(folder):
    return [p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*.html")) if "_static" not in p.relative_to(folder).parts]


def sideways(page, name):
    """Whether a page of NARROW pixels scrolls sideways."""
    have = page.evaluate("document.documentElement.scrollWidth")
    if have > NARROW:
        widest = page.evaluate("""w => [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > w)
            .slice(0, 3).map(e => e.tagName + '.' + e.className).join(', ')""", NARROW)
        yield f"{name}: scrolls sideways; got {have} pixels; expected at most {NARROW}; hint: {widest}"


def narrow(page, base, folder, seconds, seed):
    """PAGES in a narrow window, and as many of the others as there is time for, in the order of `seed`. The number of pages is the generator's value."""
    others = [name for name in html_pages(folder) if name not in PAGES]
    random.Random(seed).shuffle(others)
    end, seen = time.monotonic() + seconds, 0
    page.set_viewport_size({"width": NARROW, "height": 800})
    for name in [*PAGES, *others]:
        if seen >= len(PAGES) + 10 and time.monotonic() > end:
            break
        if page.goto(base + name, wait_until="load").status != 200:
            yield f"{name}: there is no such page"
        yield from sideways(page, name)
        seen += 1
    return seen


def menu(page, base):
    """On a telephone, the button opens the menu, the menu leads to a page, and Escape closes it."""
    page.set_viewport_size({"width": NARROW, "height": 800})
    page.goto(base + "docs/install.html")
    page.click("button.primary-toggle")
    dialog = page.locator("#pst-primary-sidebar-modal")
    if not dialog.is_visible():
        yield "docs/install.html: the button of the menu does not open it"
        return
    yield from sideways(page, "docs/install.html with its menu")
    page.keyboard.press("Escape")
    page.wait_for_timeout(500)  # it moves out
    if dialog.is_visible():
        yield "docs/install.html: Escape does not close the menu"
    page.click("button.primary-toggle")
    dialog.get_by_role("link", name="Guides").first.click()
    if "guides" not in page.url:
        yield f"the menu's Guides leads to {page.url}"


def scheme(page):
    return page.evaluate("document.documentElement.dataset.theme")


def choose_scheme(page, mode):
    page.click("button.theme-switch-button:visible")
    page.click(f".theme-change-button[data-mode={mode}]:visible")


def contrast(page, name):
    for colours, (ratio, element, text) in page.evaluate(CONTRAST).items():
        yield f"{name}: too little contrast; got {ratio} for {colours}; expected at least 4.5; hint: {element} with {text!r}"


def schemes(page, base):
    """The switch changes the scheme, also of the next page, and texts can be read in both schemes."""
    page.set_viewport_size({"width": WIDE, "height": 900})
    for mode in ("dark", "light"):
        page.goto(base + PAGES[0])
        choose_scheme(page, mode)
        if scheme(page) != mode:
            yield f"the switch does not lead to the scheme {mode}; got {scheme(page)}"
        for name in [*PAGES, "search.html?q=softmax", "reference/python/pyflame.data.html#pyflame.data.DataLoader"]:
            page.goto(base + name)
            if scheme(page) != mode:
                yield f"{name}: the scheme {mode} was not kept from page to page; got {scheme(page)}"
            yield from contrast(page, f"{name} in the scheme {mode}")


def pictures(page, base, folder):
    """Texts of pictures can be read in both schemes, as the page shows them."""
    for mode in ("dark", "light"):
        page.goto(base + "index.html")
        choose_scheme(page, mode)
        style = page.evaluate("(s => [s.filter, s.backgroundColor])(getComputedStyle(document.querySelector('.bd-article img')))")
        numbers = {name: float(value) for name, value in re.findall(r"(brightness|contrast)\(([\d.]+)\)", style[0])}
        background = [float(v) for v in re.findall(r"[\d.]+", style[1])]
        if (len(background) < 4 or background[3] == 0) and style[1].startswith("rgba"):
            background = [float(v) for v in re.findall(r"[\d.]+", page.evaluate("getComputedStyle(document.body).backgroundColor"))]
        shown = {"brightness": 1.0, "contrast": 1.0, **numbers, "background": [*background[:3], 1.0]}
        page.goto("about:blank")
        for file in sorted((folder / "_images").glob("*.svg")):
            page.set_content(file.read_text(encoding="utf-8"))
            for problem in page.evaluate(PICTURE_CONTRAST, shown):
                yield f"{file.name} in the scheme {mode}: too little contrast; got {problem}; expected at least 4.5"
    for file in sorted((folder / "_images").iterdir()):
        if file.suffix != ".svg":
            yield f"{file.name}: a picture that is no SVG; its texts cannot be checked"


def results_of(page, words):
    """Types words into the search as a person with a keyboard does; the first results."""
    page.keyboard.press("Control+k")
    page.keyboard.type(words)
    page.keyboard.press("Enter")
    page.wait_for_url("**/search.html?*")
    page.wait_for_function("/found|did not match/.test(document.querySelector('#search-results .search-summary')?.innerText)")
    page.wait_for_timeout(100)
    return page.evaluate(FIRST_RESULTS)


def search(page, base):
    """Words find the page that one expects, and a result opens at its anchor; with the keyboard alone."""
    page.set_viewport_size({"width": WIDE, "height": 900})
    for words, wanted in SEARCHES:
        page.goto(base + "docs/install.html")
        found = results_of(page, words)
        if not any(wanted in address for address in found):
            yield f"search for {words!r}: got {found}; expected {wanted} among the first three results"
    page.goto(base + "docs/install.html")
    first = results_of(page, "layer_norm")[:1]
    for _ in range(60):  # the links of the header come before
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.href ?? ''") in first:
            break
    else:
        yield f"search for 'layer_norm': Tab does not come to the first result, {first}"
        return
    with page.expect_navigation():
        page.keyboard.press("Enter")
    anchor = page.evaluate("decodeURIComponent(location.hash.slice(1))")
    place = page.evaluate("id => { const r = document.getElementById(id)?.getBoundingClientRect(); return r && [r.top, document.querySelector('.bd-header').getBoundingClientRect().bottom, innerHeight]; }", anchor)
    if page.url not in first:
        yield f"search for 'layer_norm': Tab and Enter lead to {page.url}; expected {first}"
    elif not place or not place[1] - 1 <= place[0] < place[2]:
        yield f"{page.url}: its anchor is not in view; got top, header and height {place}"


def versions(page, base):
    """`base` serves two versions: one comes to the newest, the switch leads to the same page of the other version, and to its first page where it has not that page."""
    page.set_viewport_size({"width": WIDE, "height": 900})
    page.goto(base)
    page.wait_for_url("**/0.2.0/index.html")
    page.goto(base + "0.2.0/second.html")
    for version, name in (("0.1.0", "second.html"), ("0.2.0", "second.html")):
        page.click("button.version-switcher__button:visible")
        page.click(f".version-switcher__menu:visible a[data-version='{version}']")
        page.wait_for_load_state("load")
        page.wait_for_url(f"**/{version}/*")
        if not page.url.endswith(f"/{version}/{name}"):
            yield f"the switch of versions leads to {page.url}; expected {version}/{name}"
        page.wait_for_function("document.querySelector('.version-switcher__button').dataset.activeVersion")
        active = page.evaluate("document.querySelector('.version-switcher__button').dataset.activeVersion")
        if active != version or f"This is {version}." not in page.inner_text(".bd-article"):
            yield f"{page.url}: the switch shows version {active}"
    page.goto(base + "0.1.0/second.html")
    if "0.2.0" not in json.dumps(page.evaluate("fetch('../versions.json').then(r => r.json())")):
        yield "versions.json lacks the version 0.2.0"
    page.wait_for_selector("#bd-header-version-warning:not(.d-none)", timeout=5000)


BROKEN = "<body style='margin:0'><p style='color:#999;background:#fff'>pale</p><div style='width:900px;height:9px'></div></body>"
BROKEN_PICTURE = "<svg width='90' height='90'><rect width='90' height='90' fill='#ffffff'/><text x='9' y='50' fill='#bbbbbb'>pale</text></svg>"


def blind(page):
    """A page and a picture with each mistake: problems where a check does not see it."""
    page.set_viewport_size({"width": NARROW, "height": 800})
    page.set_content(BROKEN)
    if len(list(sideways(page, "broken"))) != 1 or len(list(contrast(page, "broken"))) != 1:
        yield "the checks do not see the mistakes of a broken page"
    page.set_content(BROKEN_PICTURE)
    if len(page.evaluate(PICTURE_CONTRAST, {"brightness": 1, "contrast": 1, "background": [255, 255, 255, 1]})) != 1:
        yield "the check of pictures does not see pale text"
