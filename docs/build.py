"""Build the documentation: the pages here, and two that are made of the code. ``make docs`` runs it; no network is needed."""

import argparse
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium as gym

from gym_text_policies.cli import COMMANDS, make_parser
from gym_text_policies.commands.envs import EnvsConfig, describe_space, has_expert
from gym_text_policies.commands.envs import run as list_environments
from gym_text_policies.environments import make_environment, playable_ids

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
"""Committed; ``python benchmarks/pictures.py`` makes them."""
PAGES = {
    "index.md": "Start",
    "environments.md": "Environments",
    "experiments.md": "Experiments",
    "reports.md": "Reports",
    "strategies.md": "Strategies and answers",
    "providers.md": "Providers",
    "results.md": "Results",
    "training.md": "Training",
    "training-log.md": "Training log",
    "training-loops.md": "Other training loops",
    "search.md": "Policy search",
    "scale.md": "More machines",
    "extend.md": "Write your own",
    "command-line.md": "Command line",
    "troubleshooting.md": "Troubleshooting",
}
"""In the order of the menu; those that are not there are left out."""
SETTINGS = """\
[project]
site_name = "gym-text"
site_description = "Text environments for Gymnasium, and language models as their policies"
docs_dir = "pages"
site_dir = "site"
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
pymdownx.highlight = {{}}
pymdownx.superfences = {{}}
"""


def environments_page() -> str:
    """Return the page of all environments, from the registry and the docstrings."""
    parts = [
        "# Environments\n\nMade of the code: each section is the docstring of its class.\n",
        f"```\n{list_environments(EnvsConfig(all=True))}\n```\n",
    ]
    for name in playable_ids(gymnasium=False):
        with make_environment(name) as env:
            limit = env.spec.max_episode_steps if env.spec else None
            facts = [
                f"actions `{describe_space(env.action_space)}`",
                f"limit {limit or 'its own'}",
                "an expert" if has_expert(env) else "no expert",
            ]
            picture = (
                f"![{name}, drawn](pictures/environments/{name}.png)"
                if (PICTURES / "environments" / f"{name}.png").exists()
                else ""
            )
            parts.append(
                f"## {name}\n\n{', '.join(facts)}.\n\n{picture}\n\n{as_markdown(inspect.getdoc(type(env.unwrapped)) or '')}\n"
            )
    parts.append("## Gymnasium's own\n\nPut into words by `DescribeObservation`; `gym-text` commands do so by themselves.\n")
    parts.append("| id | task | actions |\n|---|---|---|")
    for name in playable_ids(gymnasium=True)[len(playable_ids(gymnasium=False)) :]:
        try:
            with make_environment(name) as env:
                spec = env.get_wrapper_attr("text_spec")
        except (ImportError, ValueError, gym.error.Error):  # MuJoCo is not installed, or an old version needs what is gone
            continue
        actions = ", ".join(action.name for action in spec.actions)
        parts.append(f"| `{name}` | {' '.join(spec.goal.split())} | {actions or 'a number for each'} |")
    return "\n".join(parts) + "\n"


def command_line_page() -> str:
    """Return the page of all commands, as they explain themselves."""
    os.environ["COLUMNS"] = "110"
    parts = [
        "# Command line\n\nExit status: 0, 1 for a run that could not go on or had nothing but errors, "
        "2 for a mistake of the user, 130 after Ctrl-C.\n",
        'Completion: `eval "$(gym-text completion bash)"`.\n',
    ]
    for name in COMMANDS:
        subparsers = next(a for a in make_parser([name])._actions if isinstance(a, argparse._SubParsersAction))
        parts.append(f"## gym-text {name}\n\n```\n{subparsers.choices[name].format_help().strip()}\n```\n")
    return "\n".join(parts)


def as_markdown(doc: str) -> str:
    """Return a docstring as Markdown: literals, code blocks, doctests; its headings one level lower."""
    lines: list[str] = []
    in_session = False
    for line in [*doc.splitlines(), ""]:
        if line.startswith(">>>") and not in_session:
            lines.append("```python")
            in_session = True
        elif in_session and not line.strip():
            lines.append("```")
            in_session = False
        if in_session:
            lines.append(line)
        else:
            text = line.replace("``", "`")
            lines.append(re.sub(r"^(#+ )", r"#\1", text.removesuffix(":") if text.endswith("::") else text))
    return "\n".join(lines)


def without_outer_links(text: str) -> str:
    """Return a page whose links to files of the repository outside of the site are their names alone."""
    return re.sub(r"\[[^\]]*\]\(\.\./([^)]*)\)", r"`\1`", text)


def build(folder: Path) -> Path:
    """Write the pages and the settings into a folder, and build the site there."""
    pages = folder / "pages"
    shutil.rmtree(folder, ignore_errors=True)
    pages.mkdir(parents=True)
    for path in HERE.glob("*.md"):
        (pages / path.name).write_text(without_outer_links(path.read_text("utf-8")), "utf-8")
    shutil.copytree(PICTURES, pages / "pictures")
    (pages / "environments.md").write_text(environments_page(), "utf-8")
    (pages / "command-line.md").write_text(command_line_page(), "utf-8")
    nav = ", ".join(f'{{ "{title}" = "{name}" }}' for name, title in PAGES.items() if (pages / name).exists())
    (folder / "zensical.toml").write_text(SETTINGS.format(nav=nav), "utf-8")
    status = subprocess.run([sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder).returncode
    if status:
        sys.exit(status)
    return folder / "site"


if __name__ == "__main__":
    print(f"\nOpen {build(HERE.parent / 'build' / 'docs') / 'index.html'}")
