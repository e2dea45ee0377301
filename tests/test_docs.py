"""The documentation builds, offline; the code in it runs as a doctest."""

import importlib.util
import json
import re
import runpy
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from gym_text_policies import cli
from gym_text_policies.environments import playable_ids

DOCS = Path(__file__).parent.parent / "docs"
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


def test_the_list_of_environments_has_all_columns_and_links(site):
    page = (site.parent / "pages/environments.md").read_text()
    assert "| id | observation | actions | limit | expert |\n" in page
    assert "| [BabyAIText-v0](#babyaitext-v0) | `goal` `text` | `Discrete(6)` | its own | yes |\n" in page


def test_every_environment_has_its_picture_on_the_site(site):
    page = Links(site / "environments/index.html")
    pictures = {f"../pictures/environments/{name}.png" for name in playable_ids(gymnasium=False)}
    assert pictures <= page.targets
    assert all((site / "environments" / picture).resolve().is_file() for picture in pictures)


def test_the_command_line_page_says_what_help_says(site):
    page = (site.parent / "pages/command-line.md").read_text()
    assert "`--episodes N`\n:   " in page and "`ENVIRONMENT`\n:   Id of the environment" in page
    assert "%%" not in page and "%(" not in page
    assert "SUPPRESS" not in page


def test_text_of_the_terminal_is_not_read_as_markup(build):
    assert build.plain("of *all* <b> `a_b*` 5 %% [x](y)") == r"of \*all\* \<b> `a_b*` 5 % \[x\](y)"


def test_options_stay_whole_where_code_wraps(build):
    text = '<p>--a <code class="x"><span id="s-0-1">play --seed 3</span></code></p>'
    assert build.with_whole_options(text) == text.replace("--seed", '<span class="whole">--seed</span>')


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


def test_links_out_of_the_site_become_names(build):
    text = "see [the table](../benchmarks/results/search.md), [start](index.md) and [a notebook](notebooks/first-steps.ipynb)"
    shown = "see `benchmarks/results/search.md`, [start](index.md) and [a notebook](first-steps.md)"
    assert build.without_outer_links(text) == shown


def ppo(*arguments):
    """Run the loop in CleanRL's manner from its command line; return the success that each line reports."""
    run = subprocess.run(
        [sys.executable, "-W", "error", DOCS / "cleanrl_ppo.py", *arguments], capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    return [float(success) for success in re.findall(r"success ([\d.]+), [\d.]+ steps an episode$", run.stdout, re.M)]


def test_cleanrls_ppo_learns_goto_from_its_command_line():
    small = ("--total-timesteps", "16384", "--eval-every", "100", "--eval-episodes", "50")
    before, after = ppo(*small)
    assert before < 0.5 and after > 0.75


def test_cleanrls_ppo_takes_the_fast_vector_environment_and_its_masks():
    arguments = ("--env-id", "CookingWorldText-v0", "--arguments", '{"actions": "index"}', "--length", "256")
    small = ("--total-timesteps", "256", "--num-envs", "8", "--num-steps", "16", "--eval-episodes", "4")
    assert len(ppo(*arguments, *small)) == 2


def test_cleanrls_ppo_is_short():
    assert len((DOCS / "cleanrl_ppo.py").read_text().splitlines()) <= 250


def test_what_bfloat16_changes_is_told_as_it_was_measured():
    differences = json.loads((DOCS.parent / "benchmarks" / "results" / "precision.json").read_text())["differences"]
    total = {name: sum(each[name] for each in differences) for name in ("prompts", "others", "sum", "probabilities")}
    text = " ".join((DOCS / "models.md").read_text("utf-8").split())
    assert (
        f"On {total['prompts']} recorded prompts" in text and f"{total['others'] / total['prompts']:.1%} of the decisions" in text
    )
    assert f"by {total['sum'] / total['probabilities']:.5f} on average" in text
    assert f"by {max(each['largest'] for each in differences):.3f} at most" in text


def test_the_page_says_which_extras_are_not_among_all():
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    among = set(re.findall(r"[\w-]+", extras["all"][0].partition("[")[2]))
    said = re.search(r"has everything but the extras (.*?)\.\n", (DOCS / "extend.md").read_text("utf-8"), re.DOTALL)
    assert re.findall(r"`([\w-]+)`", said[1]) == sorted(extras.keys() - among - {"all", "dev"})
