"""MathJax, which typesets what stands between two dollars in a notebook, leaves a game's text as it is."""

import runpy
import subprocess
from pathlib import Path

import pytest

from gym_text_policies import load_policy, rollout
from gym_text_policies.environments import environment_maker
from gym_text_policies.report.step_pictures import illustrated

BROWSER = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks/helpers/browser.py"))
PAGE = """<script>MathJax = {tex: {inlineMath: [["$", "$"]]}}</script><script src="package/es5/tex-chtml-full.js"></script>
<p id="formula">$x^2$</p><div id="game">%s</div>"""


def test_a_board_of_sokoban_is_no_formula(tmp_path):
    path = BROWSER["find_browser"]()
    packed = subprocess.run("npm pack mathjax@3.2.2 && tar xzf *.tgz", shell=True, cwd=tmp_path, capture_output=True)
    if path is None or packed.returncode:
        pytest.skip("Chromium or MathJax is not there")
    make_env = environment_maker("SokobanText-v0")
    (episode,) = rollout(make_env, load_policy("random", make_env()), [0])
    page = tmp_path / "page.html"
    page.write_text(PAGE % illustrated(episode)._repr_html_(), "utf-8")
    with BROWSER["Browser"](path) as browser:
        browser.open(page.as_uri())
        browser.run("MathJax.startup.promise.then(() => 1)")
        found = [browser.run(f"document.querySelectorAll('#{part} mjx-container').length") for part in ("formula", "game")]
    assert found == [1, 0] and episode.steps[0].observation["text"].count("$") > 1
