"""The built site: all pages and links exist, no other host is contacted, and the site works in a browser."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from fairseq_posenc import registry
from fairseq_posenc.registry import catalog
from fairseq_posenc.registry.citations import bibtex
from tests.documents import documents as documents_of_checkout

pytestmark = pytest.mark.slow

CONTRAST = Path(__file__).with_name("contrast.js").read_text(encoding="utf-8")

_VOID = set("area base br col embed hr img input link meta source track wbr".split())
#: elements that a browser loads automatically, and the attribute with the address
_FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src", "object": "data"}


class Page(HTMLParser):
    """Collect links, addresses that a browser loads, link targets, and elements that are not closed."""

    def __init__(self, text):
        super().__init__()
        self.links, self.fetched, self.names, self.open, self.wrong, self.text = [], [], set(), [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.names |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if found.get(_FETCHED.get(tag)):
            self.fetched.append(found[_FETCHED[tag]])
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag in _VOID:
            return
        while self.open and self.open[-1] != tag and self.open[-1] in ("p", "li", "td", "th", "tr", "option", "dd", "dt"):
            self.open.pop()  # HTML closes these elements implicitly
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def parsed(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_every_page_is_there(site, parsed):
    documents = [page.removesuffix(".md") for page in documents_of_checkout() if page != "README.md"]
    for name in ("index", "choose", "docs/api", "docs/reference/commands", "recipes/README", "results/README", *documents):
        assert site / f"{name}.html" in parsed
    assert {path.stem for path in (site / "docs" / "methods").glob("*.html")} == set(registry.names())


def test_elements_are_closed(parsed):
    assert not {path.name: page.wrong for path, page in parsed.items() if page.wrong}


def test_links_hold(site, parsed):
    broken = []
    for path, page in parsed.items():
        for link in page.links + page.fetched:
            parts = urlsplit(link)
            if parts.scheme in ("http", "https", "mailto", "data"):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            name = unquote(parts.fragment)
            if not target.is_file() or (name and target.suffix == ".html" and name not in parsed[target].names):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken


def test_nothing_is_fetched_from_another_host(site, parsed):
    fetched = [link for page in parsed.values() for link in page.fetched]
    assert fetched and not [link for link in fetched if urlsplit(link).netloc]
    for path in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//[^)]*", path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("name", registry.names())
def test_the_page_of_a_method(site, parsed, name):
    path = site / "docs" / "methods" / f"{name}.html"
    page, html = parsed[path], path.read_text(encoding="utf-8")
    text = " ".join("".join(page.text).split())
    card = registry.card(name)
    assert card.title in text and "<math" in html and any(f"{name}.png" in link for link in page.fetched)
    for option, *_ in catalog.option_rows(name):
        assert option in text
    assert " ".join(bibtex(card.citations).split()) in text
    files = {unquote(link).split("/")[-1] for link in page.links}
    assert f"{registry.declaration(name).module.split('.')[-1]}.py" in files
    assert any(re.fullmatch(r"oracle_\w+\.py", file) for file in files)
    assert f"--arch posenc_{name} " in text and ("mean BLEU" in text or "do not contain this method" in text)


def test_benchmarked_methods_show_their_cost(site, parsed):
    shaw = "".join(parsed[site / "docs/methods/shaw.html"].text)
    assert "Ratios to stock fairseq" in shaw and re.search(r"training time, 8 sentences of 128 words\s+\d\.\d\d", shaw)


# --- in a browser ----------------------------------------------------------------------------------------------------


def test_the_browser_tells_what_is_wrong(tmp_path, browser):
    (tmp_path / "bad.html").write_text(
        "<img src='http://other.invalid/x.png'><div style='width: 500px'>wide</div>"
        "<script>console.error('told'); throw new Error('thrown')</script>"
    )
    browser.open((tmp_path / "bad.html").as_uri(), 390)
    problems = " ".join(browser.problems())
    assert "told" in problems and "thrown" in problems and "http://other.invalid/x.png" in browser.requests()
    assert browser.value("document.documentElement.scrollWidth") > 390
    browser.resize(1200)
    assert browser.value("document.documentElement.scrollWidth") == 1200
    browser.resize(390)
    assert browser.value("document.documentElement.scrollWidth") > 390


def test_links_and_elements_that_are_wrong_are_found():
    page = Page("<p><a href='x.html#y' id='here'>text</b></a><img src='//other/host.png'>")
    assert page.wrong and page.links == ["x.html#y"] and page.names == {"here"} and page.fetched == ["//other/host.png"]


def test_low_contrast_is_found(tmp_path, browser):
    page = tmp_path / "page.html"
    texts = [
        ("#777", "grey"),
        ("#767676", "darker"),
        ("#0009", "half"),
        ("#0007", "transparent"),
        ("#959595; font-size: 24px", "big"),
    ]
    lines = "".join(f'<p style="color: {colour}">{text}</p>' for colour, text in texts)
    page.write_text(
        f"<!doctype html>{lines}<p style='background: #333; color: #777'>on black</p><p hidden style='color: #eee'>hidden</p>"
    )
    browser.open(page.as_uri())
    assert [found.split(": ")[1] for found in browser.value(CONTRAST)] == ["grey", "transparent", "big", "on black"]


def test_every_page_opens_without_errors_and_can_be_read_and_asks_no_other_host_and_fits_a_telephone(site, parsed, browser):
    wrong, wide = {}, {}
    for path in parsed:
        browser.open(path.as_uri())
        contrast = browser.value(CONTRAST)
        browser.resize(390)
        width = browser.value("document.documentElement.scrollWidth")
        foreign = [address for address in browser.requests() if not address.startswith(("file:", "data:"))]
        problems = browser.problems() + foreign + contrast
        if problems:
            wrong[str(path.relative_to(site))] = problems
        if width > 390:
            wide[str(path.relative_to(site))] = width
    assert not wrong and not wide


def shown(browser):
    return browser.value(
        "[...document.querySelectorAll('#choose tbody tr')].filter(r => r.offsetHeight > 0)"
        ".map(r => r.cells[0].querySelector('a').textContent)"
    )


def choose(browser, **filters):
    for name, value in filters.items():
        browser.value(
            f"(field => {{ field.value = {value!r}; field.dispatchEvent(new Event('input', {{bubbles: true}})); }})"
            f"(document.querySelector('#filters [name={name}]'))"
        )


def test_the_filter(site, browser):
    cards = {name: registry.card(name) for name in registry.names()}
    browser.open((site / "choose.html").as_uri())
    assert shown(browser) == list(cards)
    choose(browser, site="cross", learnable="no")
    wanted = [name for name, card in cards.items() if "cross" in card.all_sites and not card.learnable]
    assert shown(browser) == wanted and 0 < len(wanted) < len(cards)
    assert browser.value("document.querySelector('#filters output').value") == f"{len(wanted)} of {len(cards)} methods"
    address = browser.value("location.href")
    assert "site=cross" in address
    browser.open(address)
    assert shown(browser) == wanted
    choose(browser, site="", learnable="", evidence="peer", cost="1.02")
    costs = browser.value(
        "[...document.querySelectorAll('#choose tr')].filter(r => !r.hidden && r.dataset.cost).map(r => +r.dataset.cost)"
    )
    assert costs and max(costs) <= 1.02 and {cards[name].evidence for name in shown(browser)} == {"peer"}
    choose(browser, evidence="", cost="", text="rotary")
    assert {"rope", "xpos"} <= set(shown(browser)) and "t5" not in shown(browser)


def test_tables_are_sorted_by_a_click(site, browser):
    browser.open((site / "choose.html").as_uri())
    numbers = "[...document.querySelectorAll('#choose tbody tr')].map(r => +r.cells[6].textContent.replace(/,/g, ''))"
    for order in (1, -1):
        browser.value("document.querySelectorAll('#choose th')[6].click()")
        found = browser.value(numbers)
        assert found == sorted(found, key=lambda number: order * number)


def press(browser, key, code):
    for event in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=event, key=key, windowsVirtualKeyCode=code)


def test_tables_are_sorted_from_the_keyboard(site, browser):
    browser.open((site / "choose.html").as_uri())
    browser.value("document.querySelector('#filters [name=text]').focus()")
    press(browser, "Tab", 9)
    numbers = "[...document.querySelectorAll('#choose tbody tr')].map(r => +r.cells[6].textContent.replace(/,/g, ''))"
    assert browser.value("document.activeElement === document.querySelectorAll('#choose th')[0]")
    for _ in range(6):
        press(browser, "Tab", 9)
    for key, code, order in (("Enter", 13, 1), (" ", 32, -1)):
        press(browser, key, code)
        found = browser.value(numbers)
        assert found == sorted(found, key=lambda number: order * number)


@pytest.mark.parametrize("width", [360, 390, 599])
def test_the_chooser_on_a_telephone_has_its_essential_columns(site, browser, width):
    browser.open((site / "choose.html").as_uri(), width)
    heads = "[...document.querySelectorAll('#choose th')].filter(h => h.offsetWidth > 0).map(h => h.textContent)"
    assert browser.value(heads) == ["method", "positions", "parameters", "cost"]
    assert browser.value("document.querySelector('#choose').offsetWidth <= document.querySelector('.table-wrapper').clientWidth")


def test_equations_are_drawn(site, browser):
    browser.open((site / "docs/methods/shaw.html").as_uri())
    assert browser.value("document.querySelector('.equation math msub').getBoundingClientRect().height") > 5


def test_the_search_finds_a_method(site, browser):
    browser.open((site / "search.html").as_uri() + "?q=kerple")
    found = "document.querySelectorAll('#search-results li').length"
    assert (
        browser.value(f"new Promise(done => {{ const look = () => {found} ? done({found}) : setTimeout(look, 50); look(); }})")
        > 0
    )
