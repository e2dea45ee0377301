"""The documentation builds, offline; the code in it runs as a doctest."""

import importlib.util
import re
import runpy
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from gym_text_policies import cli
from gym_text_policies.environments import playable_ids

DOCS = Path(__file__).parents[2] / "docs"
CUT_OFF = """[...document.querySelectorAll("article *")].filter(one => {
  if (one.matches("pre > code") && one.scrollWidth > one.clientWidth + 1) return true;
  if (one.closest(".md-typeset__scrollwrap")) return false;  // a table scrolls in its box
  if (one.matches("pre *")) return false;  // white space may hang over
  const box = one.getBoundingClientRect();
  return box.width && box.right > document.documentElement.clientWidth + 1;
}).map(one => one.outerHTML.slice(0, 100))"""
"""What does not fit into the window, and code that does not fit into its block."""


@pytest.fixture(scope="module")
def build():
    pytest.importorskip("griffe")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        spec = importlib.util.spec_from_file_location("docs_build", DOCS / "build.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def site(build, tmp_path_factory):
    pytest.importorskip("zensical")
    return build.build(tmp_path_factory.mktemp("docs") / "docs")


class Links(HTMLParser):
    """What a page links to, and the places in it that links can lead to."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.anchors = set(), set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag in ("a", "img", "link", "script"):
            self.targets |= {given[key] for key in ("href", "src") if given.get(key)}


def test_the_site_has_every_page_environment_and_command(site):
    pages = {path.stem for path in (*DOCS.glob("*.md"), *DOCS.glob("notebooks/*.ipynb"))} | {
        "environments",
        "command-line",
        "reference",
    }
    assert all((site / page / "index.html").is_file() for page in pages - {"index"}) and (site / "index.html").is_file()
    environments = (site.parent / "pages/environments.md").read_text()
    assert all(f"## {name}\n" in environments for name in playable_ids(gymnasium=False))
    assert "`FrozenLake-v1`" in environments and environments.count("```") % 2 == 0
    commands = (site.parent / "pages/command-line.md").read_text()
    assert all(f"## gym-text {name}\n" in commands for name in cli.COMMANDS)
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=.https?://", (site / "index.html").read_text())


def test_no_link_of_the_site_is_dead(site):
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    dead = []
    for page, links in pages.items():
        for target in links.targets:
            if target.startswith(("http:", "https:", "data:", "mailto:")):
                continue
            path, _, anchor = unquote(target).partition("#")
            file = (page.parent / path).resolve() if path else page
            file = file / "index.html" if file.is_dir() else file
            if not file.is_file() or (anchor and file.suffix == ".html" and anchor not in pages[file].anchors):
                dead.append(f"{page.relative_to(site)}: {target}")
    assert dead == []


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off_in_a_browser(site, width):
    browsers = runpy.run_path(str(DOCS.parent / "benchmarks/helpers/browser.py"))
    path = browsers["find_browser"]()
    if path is None:
        pytest.skip("Chromium is not installed")
    try:
        browser = browsers["Browser"](path)
    except browsers["BrowserError"] as error:
        pytest.skip(str(error))
    with browser:
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        for page in sorted(site.rglob("index.html")):
            browser.open(page.as_uri())
            assert browser.run(CUT_OFF) == [], page.parent.name
            assert browser.run("[...document.images].every(one => one.loading == 'lazy' || one.naturalWidth > 0)"), page.parent.name


def test_every_page_is_in_the_menu(build):
    assert {path.name for path in DOCS.glob("*.md")} <= build.PAGES.keys()
