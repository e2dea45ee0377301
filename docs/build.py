"""Build the documentation: the pages in this folder, the notebooks, and three pages from the code. It needs no network.

``make docs`` runs it: first the notebooks, from top to bottom, then the site. ``python docs/build.py --keep-outputs`` takes the
outputs that the notebooks have.
"""

import argparse
import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym
from reference import as_markdown, reference_page
from run_notebooks import NOTEBOOKS, page_of, run_all

from gym_text_policies.cli import COMMANDS, make_parser
from gym_text_policies.commands.envs import describe_space, has_expert
from gym_text_policies.environments import make_environment, playable_ids

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
"""The folder of the pictures, which are committed; ``python benchmarks/pictures.py`` makes them."""
PAGES = {
    "index.md": "Start",
    "first-steps.md": "Notebook: first steps",
    "own-environment.md": "Notebook: an environment of your own",
    "teach-a-model.md": "Notebook: teach a model",
    "policy-search.md": "Notebook: policy search",
    "environments.md": "Environments",
    "worlds.md": "Worlds",
    "experiments.md": "Experiments",
    "strategies.md": "Strategies and answers",
    "lookahead.md": "Looking ahead",
    "models.md": "Models in this process",
    "providers.md": "Providers",
    "results.md": "Results",
    "published.md": "Beside published results",
    "panel.md": "The panel",
    "decision-models.md": "Decision models",
    "training.md": "Training",
    "reinforcement.md": "Reinforcement learning",
    "training-log.md": "Training log",
    "trl.md": "TRL",
    "evaluators.md": "verifiers, Inspect, OpenEnv",
    "levels.md": "verl, SkyRL, NeMo Gym, ART",
    "search.md": "Policy search",
    "scale.md": "More machines",
    "extend.md": "Write your own",
    "command-line.md": "Command line",
    "reference.md": "Reference",
}
"""The pages in the order of the menu, with their titles. A page without a file is left out."""
SETTINGS = """\
[project]
site_name = "gym-text"
site_description = "Text environments for Gymnasium, and language models as their policies"
docs_dir = "pages"
site_dir = "site"
extra_css = ["site.css"]
nav = [{nav}]

[project.theme]
font = false
features = ["content.code.copy", "navigation.footer", "navigation.top", "search.highlight"]

[project.markdown_extensions]
admonition = {{}}
attr_list = {{}}
def_list = {{}}
tables = {{}}
toc.permalink = true
toc.toc_depth = 3
pymdownx.magiclink = {{}}
pymdownx.highlight.line_spans = "line"
pymdownx.superfences = {{}}
"""

STYLE = """\
/* Code wraps with an indent, its options whole. A table scrolls within its box, its names whole. */
.md-typeset pre > code { white-space: pre-wrap; overflow-wrap: anywhere; }
.md-typeset pre > code > [id^="line-"] { display: block; padding-left: 2em; text-indent: -2em; }
.md-typeset .whole { white-space: nowrap; }
.md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: 0.5em 0.8em; }
.md-typeset table:not([class]) code { overflow-wrap: normal; word-break: keep-all; }
.md-typeset :is(dl, dd) { margin-bottom: 0.6em; margin-top: 0; }
.md-typeset dd > p { margin: 0.2em 0; }
.md-typeset .notebook-output { margin: 1em 0; max-width: 100%; }
.md-typeset .notebook-output table { font-size: inherit; }
.md-typeset h4 { border-top: 1px solid var(--md-default-fg-color--lightest); padding-top: 1em; }
"""


def environments_page() -> str:
    """Return the page of all environments, made from the registry and the docstrings."""
    rows = ["| id | observation | actions | limit | expert |", "|---|---|---|---|---|"]
    sections = []
    for name in playable_ids(gymnasium=False):
        with make_environment(name) as env:
            keys = " ".join(f"`{key}`" for key in env.observation_space)
            limit = (env.spec and env.spec.max_episode_steps) or "its own"
            facts = f"`{describe_space(env.action_space)}` | {limit} | {'yes' if has_expert(env) else 'no'}"
            rows.append(f"| [{name}](#{name.lower()}) | {keys} | {facts} |")
            picture = f"![{name}, drawn](pictures/environments/{name}.png)"
            sections.append(f"## {name}\n\n{picture}\n\n{as_markdown(inspect.getdoc(type(env.unwrapped)) or '')}\n")
    parts = [
        "# Environments\n\nThis page is made from the code: each section is the docstring of the environment's class.\n",
        *rows,
        "\nThe limit is in steps. `gym-text play ID` lets you play; pass arguments in the name: `BabyAIText-v0?task=goto`.\n",
        *sections,
    ]
    parts.append(
        "## Gymnasium's own\n\n`DescribeObservation` gives these environments texts; `gym-text` commands apply it automatically.\n"
    )
    parts.append("| id | task | actions |\n|---|---|---|")
    for name in playable_ids(gymnasium=True)[len(playable_ids(gymnasium=False)) :]:
        try:
            with make_environment(name) as env:
                spec = env.get_wrapper_attr("text_spec")
        except (ImportError, ValueError, gym.error.Error):  # an old version needs a package that is no more
            continue
        actions = ", ".join(action.name for action in spec.actions)
        parts.append(f"| `{name}` | {' '.join(spec.goal.split())} | {actions or 'a number for each'} |")
    return "\n".join(parts) + "\n"


def command_line_page() -> str:
    """Return the page of all commands, made from their parsers."""
    parts = [
        "# Command line\n\nThis page is made from the code: each section is the `--help` of a command.\n",
        "Exit status: 0; 1 if a run could not go on or had only errors; 2 for a usage error; 130 after Ctrl-C or SIGTERM.\n",
    ]
    for name in COMMANDS:
        subparsers = next(a for a in make_parser([name])._actions if isinstance(a, argparse._SubParsersAction))
        parts.append(command_section(name, subparsers.choices[name]))
    return "\n".join(parts)


def command_section(name: str, parser: argparse.ArgumentParser) -> str:
    """Return a command's section: its description, its arguments and options, and the epilog of its help."""
    formatter = parser._get_formatter()
    actions = [action for action in parser._actions if action.dest != "help" and action.help != argparse.SUPPRESS]
    names = [(formatter._format_action_invocation(action), action.nargs) for action in actions if not action.option_strings]
    arguments = "".join(f" [{name}]" if count == "?" else f" {name}" for name, count in names)
    parts = [f"## gym-text {name}", f"```\ngym-text {name}{arguments} [OPTIONS]\n```", plain(parser.description or "")]
    for action in actions:
        parts.append(f"`{formatter._format_action_invocation(action)}`\n:   {plain(formatter._expand_help(action))}")
    if parser.epilog:
        parts.append(f"```\n{parser.epilog.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Escape a text of the terminal for Markdown, except for code in backticks."""
    return re.sub(r"(`[^`]*`)|([*_<\[\]])", lambda match: match[1] or "\\" + match[2], text.replace("%%", "%"))


def without_outer_links(text: str) -> str:
    """Return a page whose links to files outside of the site are these files' names, and whose links to notebooks lead to pages."""
    text = re.sub(r"\]\(notebooks/([\w-]+)\.ipynb\)", r"](\1.md)", text)
    return re.sub(r"\[[^\]]*\]\(\.\./([^)]*)\)", r"`\1`", text)


def with_whole_options(html: str) -> str:
    """Return a page of the site in which no line breaks within an option, such as after the hyphens of ``--folder``."""
    whole = r'<span class="whole">\1</span>'
    return re.sub(r"<code.*?</code>", lambda code: re.sub(r"(?<![\w-])(--[\w-]+)", whole, code[0]), html, flags=re.DOTALL)


def build(folder: Path) -> Path:
    """Write the pages and the settings into a folder, and build the site there."""
    pages = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    pages.mkdir(parents=True)
    for path in HERE.glob("*.md"):
        (pages / path.name).write_text(without_outer_links(path.read_text("utf-8")), "utf-8")
    for path in NOTEBOOKS.glob("*.ipynb"):
        (pages / f"{path.stem}.md").write_text(page_of(path), "utf-8")
    shutil.copytree(PICTURES, pages / "pictures")
    (pages / "environments.md").write_text(environments_page(), "utf-8")
    (pages / "command-line.md").write_text(command_line_page(), "utf-8")
    (pages / "reference.md").write_text(reference_page(), "utf-8")
    (pages / "site.css").write_text(STYLE, "utf-8")
    nav = ", ".join(f'{{ "{title}" = "{name}" }}' for name, title in PAGES.items() if (pages / name).exists())
    (folder / "zensical.toml").write_text(SETTINGS.format(nav=nav), "utf-8")
    status = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder).returncode
    if status:
        sys.exit(status)
    for page in (folder / "site").rglob("*.html"):
        page.write_text(with_whole_options(page.read_text("utf-8")), "utf-8")
    return folder / "site"


if __name__ == "__main__":
    if "--keep-outputs" not in sys.argv[1:]:
        run_all()
    print(f"\nOpen {build(HERE.parent / 'build' / 'docs') / 'index.html'}")
