"""Every picture of the README and the documentation.

``python benchmarks/pictures.py`` makes all of them, ``python benchmarks/pictures.py results reinforcement`` only those two.
They are drawn from the committed results. The pictures of the report need Chromium.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import matplotlib
import numpy as np
from helpers.browser import Browser, find_browser
from helpers.trees import draw_tree
from PIL import Image, ImageDraw, ImageFont

import gym_text  # noqa: F401  registers the environments
from gym_text.errors import check_choice
from gym_text_policies import EpisodeStore, load_policy, rollout
from gym_text_policies.environments import make_environment, playable_ids
from gym_text_policies.policies.lookahead import LookAhead
from gym_text_policies.records import Decision, Turn
from gym_text_policies.report import write_report
from gym_text_policies.report.curves import Curve
from gym_text_policies.report.curves import lines as lines_of
from gym_text_policies.report.films import write_gif
from gym_text_policies.report.statistics import wilson_interval
from gym_text_policies.report.table import fitted, interval, number

matplotlib.use("agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "docs" / "pictures"
ADAPTERS = ROOT / "gym_text_policies" / "training" / "adapters"
SEED = 6
"""Of the film's episode, which is won in 20 steps."""
PLAYED = ("take cookbook", "read cookbook", "take knife", "open fridge", "take block of cheese", "close fridge")
"""Actions before the decision whose search is drawn, in level 0 of CookingWorld's train fold."""
GAMES = {"babyai": "BabyAI, five tasks", "cookingworld": "CookingWorld", "lunarlander": "LunarLander"}
"""Committed results of adapters, ``adapters_NAME.json``, and what their environments are called."""
PLAYERS = {
    "random": "random",
    "the base, asked alike": "SmolLM2-135M, not tuned",
    "{}-sft, greedy": "after SFT",
    "{}-ppo, greedy": "then PPO",
    "gold (expert)": "the expert",
}
"""Rows of these results, and what they are called."""
INK, FAINT, LINE, PAPER, BLUE, ORANGE = "#202124", "#686b70", "#dedcd6", "#faf9f6", "#1a5276", "#9e5200"
COLOURS = ("#9aa0a6", "#9aa0a6", "#5b9bc4", BLUE, ORANGE)
"""One for each of `PLAYERS`."""
METRICS = {
    "return": "return, drawn",
    "success": "success, drawn",
    "entropy": "entropy, nats",
    "kl": "KL from the start, nats",
    "old_kl": "KL of each iteration, nats",
}
"""Metrics of a training run, and what they are called."""
SHOWN_AFTER = {
    "TextArenaTwoPlayers-v0": 2,
    "CookingWorldText-v0": 6,
    "LunarLanderLLM-v2": 60,
    "MountainCarContinuousLLM-v0": 40,
    "BabyAIText-v0": 0,
    "SimonSaysMemoryText-v0": 0,
}
"""Steps of the expert after which an environment is drawn; the others after 3."""
STYLE = {
    **{"font.size": 10, "text.color": INK, "axes.labelcolor": FAINT, "xtick.color": FAINT, "ytick.color": INK},
    **{"axes.edgecolor": LINE, "axes.facecolor": PAPER, "figure.facecolor": PAPER, "axes.grid": False},
    **{"axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "axes.titleweight": "bold"},
}


def figures() -> dict[str, list[dict[str, Any] | None]]:
    """Return for each of `GAMES` a row for each of `PLAYERS`: value, interval, episodes. Successes of several tasks are pooled.

    Where a game has no such player, the row is None.
    """
    found: dict[str, list[dict[str, Any] | None]] = {}
    for game in GAMES:
        rows = json.loads((ROOT / f"benchmarks/results/adapters_{game}.json").read_text())["rows"]
        found[game] = []
        for player in PLAYERS:
            own = [row for row in rows if row["policy"] == player.format(game)]
            if not own:
                found[game].append(None)
            elif game == "lunarlander":
                found[game].append(
                    {"value": own[0]["return"], "interval": own[0]["return_interval"], "episodes": own[0]["episodes"]}
                )
            else:
                won, played = sum(row["won"] for row in own), sum(row["episodes"] for row in own)
                found[game].append({"value": won / played, "interval": wilson_interval(won, played), "episodes": played})
    return found


def summary_table() -> str:
    """Return the README's table of results: a row for each stage."""
    measures = ("BabyAI, five tasks: success", "CookingWorld: success", "LunarLander: return")
    lines = [f"| | {' | '.join(measures)} |", "|---|---|---|---|"]
    found = figures()
    for place, name in enumerate(PLAYERS.values()):
        if name == "then PPO":
            continue  # docs/results.md: no gain that is more than chance
        if name == "the expert":
            lines += [f"| {stage} | {' | '.join(cells)} |" for stage, cells in _from_weak_starts().items()]
        cells = []
        for game, rows in found.items():
            form = ".0f" if game == "lunarlander" else ".2f"
            row = rows[place]
            cells.append(f"{number(row['value'], form)}{interval(row['interval'], form)} ({row['episodes']})" if row else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _from_weak_starts() -> dict[str, tuple[str, str, str]]:
    """Return the cells of the stages that begin with an adapter that wins seldom: success before and after."""

    def result(name: str) -> dict[str, Any]:
        return dict(json.loads((ROOT / f"benchmarks/results/{name}.json").read_text()))

    rewards, clipped, searched = {}, {}, {}
    for name, columns in (("reinforcement", ("goto", "pickup")), ("reinforcement_cookingworld", ("CookingWorld",))):
        record = result(name)
        for column in columns:
            rewards[column] = record["rows"][0]["columns"][column]["success"], record["means"]["grpo"][column]["success"]
    for name, run, pairs in (("reinforcement_ppo", "ppo", clipped), ("reinforcement_search", "search", searched)):
        start, *_ = (record := result(name))["rows"]
        for column in ("goto", "pickup"):
            pairs[column] = start["columns"][column]["success"], record["means"][run][column]["success"]
    start, first, *_ = (record := result("reinforcement_search_cookingworld"))["rows"]
    learnt = record["means"].get("search", first["columns"])  # there may be a single run
    searched["CookingWorld"] = start["columns"]["CookingWorld"]["success"], learnt["CookingWorld"]["success"]
    ahead = {}
    for part in ("goto", "pickup", "cookingworld"):
        ways = {row["way"]: row["success"] for row in result("lookahead")["parts"][part]["rows"]}
        ahead[part] = ways["greedy"], ways["PUCT, 32 simulations"]
    begun, five, *_ = [
        sum(one["success"] for one in row["columns"].values()) / len(row["columns"])
        for row in result("reinforcement_search_five")["rows"]
    ]
    lander = result("reinforcement_lunarlander")
    returns = lander["rows"][0]["columns"]["LunarLander"]["return"], lander["means"]["copy"]["LunarLander"]["return"]

    def gain(pair: tuple[float, float], form: str = ".2f") -> str:
        return f"{pair[1]:{form}} from {pair[0]:{form}}"

    def tasks(pairs: Mapping[str, tuple[float, float]]) -> str:
        return ", ".join(f"{task} {gain(pairs[task])}" for task in ("goto", "pickup"))

    return {
        "by rewards (GRPO), from a weak start": (tasks(rewards), gain(rewards["CookingWorld"]), "–"),
        "by rewards (PPO), from a better start": (tasks(clipped), "–", "–"),
        "by its own search (expert iteration), from a weak start": (
            f"{tasks(searched)}; five tasks, with a memory, {gain((begun, five))}",
            gain(searched["CookingWorld"]),
            "–",
        ),
        "by rollouts of a small copy, from a weak start": ("–", "–", gain(returns, ".0f")),
        "looking ahead, from a weak start": (tasks(ahead), gain(ahead["cookingworld"]), "–"),
    }


def first_table(path: Path) -> None:
    """Draw the table of ``make bench`` as the terminal shows it, from the committed result."""
    rows = json.loads((ROOT / "benchmarks/results/policies.json").read_text())["rows"]
    lines = ["$ make bench", *fitted(rows).partition("\n\n")[0].splitlines()]
    fonts = {bold: f"fonts/ttf/DejaVuSansMono{'-Bold' if bold else ''}.ttf" for bold in (False, True)}
    plain, bold = (ImageFont.truetype(Path(matplotlib.get_data_path()) / fonts[name], 15) for name in (False, True))
    margin, height = 18, 21
    width = max(round(plain.getlength(line)) for line in lines) + 2 * margin
    image = Image.new("RGB", (width, height * len(lines) + 2 * margin), PAPER)
    pen = ImageDraw.Draw(image)
    for number_of_line, line in enumerate(lines):
        heading = number_of_line < 2 or (line[:2] == "| " and line[2] not in " ")
        colour = FAINT if set(line) <= {"|", "-"} else BLUE if line.startswith("|   after") else INK
        pen.text((margin, margin + height * number_of_line), line, colour, bold if heading else plain)
    _shrink(image, path)


def results(path: Path) -> None:
    """Draw what the stages bring, as bars."""
    found = figures()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 3, figsize=(9, 2.7), sharey=True, layout="constrained")
        for axis, (game, name) in zip(axes, GAMES.items(), strict=True):
            rows = found[game]
            for place, (row, colour) in enumerate(zip(rows, COLOURS, strict=True)):
                if row is None:
                    continue
                low, high = row["interval"]
                axis.barh(place, row["value"], 0.62, color=colour)
                axis.plot((low, high), (place, place), color=INK, linewidth=1.2, solid_capstyle="butt")
                form = "{:.0f}" if game == "lunarlander" else "{:.2f}"
                axis.annotate(
                    form.format(row["value"]), (max(high, 0), place), (5, 0), textcoords="offset points", va="center", fontsize=9
                )
            control = game == "lunarlander"
            axis.set_title(name, loc="left")
            axis.set_xlabel("mean return" if control else "success")
            axis.set_xlim((-240, 390) if control else (0, 1.18))
            axis.set_xticks((-200, 0, 200) if control else (0, 0.5, 1))
            axis.axvline(0, color=FAINT, linewidth=0.8)
            axis.set_yticks(range(len(PLAYERS)), PLAYERS.values())
            axis.tick_params(length=0)
            axis.invert_yaxis() if axis is axes[0] else None
        _save(figure, path)


def reinforcement(path: Path) -> None:
    """Draw the curves of reinforcement learning in BabyAI: the mean of GRPO's seeds in a band from lowest to highest, and PPO."""
    _by_rewards(path, ("return", "entropy", "kl"))


def reinforcement_cookingworld(path: Path) -> None:
    """Draw these curves for CookingWorld, where the KL divergence is from the policy that played the iteration's episodes."""
    _by_rewards(path, ("return", "entropy", "old_kl"))


def _by_rewards(path: Path, names: Sequence[str]) -> None:
    """Draw success in the dev fold and three other metrics of the committed runs that have the picture's name."""
    panels = (
        ("dev_success", "episodes", "dev fold: success, greedy"),
        ("dev_success", "minutes", "dev fold, over minutes"),
        *((name, "episodes", METRICS[name]) for name in names),
    )
    runs = json.loads((ROOT / "benchmarks" / "results" / f"{path.stem}.json").read_text("utf-8"))["curves"]
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 3, figsize=(9, 5.2), layout="constrained")
        *drawn, legend = axes.flat
        for axis, (name, over, title) in zip(drawn, panels, strict=True):
            found = [
                Curve(run, name, over, tuple((line[over], line[name]) for line in lines if name in line), run.partition("-")[0])
                for run, lines in runs.items()
            ]
            for line, colour in zip(lines_of(found), (BLUE, ORANGE), strict=False):
                xs, ys = zip(*line.points, strict=True)
                axis.plot(xs, ys, color=colour, linewidth=1.8, label=line.label.replace("grpo", "GRPO").replace("ppo-0", "PPO"))
                if line.band:
                    axis.fill_between(*zip(*line.band, strict=True), color=colour, alpha=0.18, linewidth=0)
            axis.set_title(title, loc="left")
            axis.set_xlabel(over)
            axis.set_ylim(bottom=0)
        legend.axis("off")
        legend.legend(*drawn[0].get_legend_handles_labels(), frameon=False, loc="center left")
        _save(figure, path)


def trl(path: Path) -> None:
    """Draw the curve of TRL's GRPO beside its start on the same levels: a point for each step of the optimiser, means of ten."""
    record = json.loads((ROOT / "benchmarks" / "results" / "trl_babyai.json").read_text("utf-8"))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
        for axis, (name, title) in zip(axes, (("success", METRICS["success"]), ("reward", METRICS["return"])), strict=True):
            for (label, values), colour in zip(record[name].items(), (BLUE, COLOURS[0]), strict=True):
                means = [statistics.fmean(values[max(0, end - 10) : end]) for end in range(1, len(values) + 1)]
                axis.plot(record["episodes"], values, ".", color=colour, alpha=0.35)
                axis.plot(record["episodes"], means, color=colour, linewidth=1.8, label=label)
            axis.set_title(title, loc="left")
            axis.set_xlabel("episodes")
            axis.set_ylim(0, 1.02)
        axes[1].legend(frameon=False, loc="lower right")
        _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=200)
    plt.close(figure)
    _shrink(Image.open(path), path)


def _shrink(image: Image.Image, path: Path) -> None:
    """Save a picture as PNG with a palette of 256 colours, which is a third as large; small red things stay red."""
    few = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def _shrink_film(path: Path) -> None:
    """Give all frames of a GIF the same 16 colours: where a frame does not change, nothing is stored."""
    with Image.open(path) as film:
        frames, durations = [], []
        for number in range(film.n_frames):
            film.seek(number)
            durations.append(film.info["duration"])
            frames.append(film.convert("RGB"))
    palette = frames[len(frames) // 2].quantize(16, Image.Quantize.MAXCOVERAGE)
    few = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    few[0].save(path, save_all=True, append_images=few[1:], duration=durations, loop=0, optimize=True)


def cooking(path: Path) -> None:
    """Play an episode of CookingWorld and film it."""

    def make() -> gym.Env[Any, Any]:
        return gym.make("CookingWorldText-v0", fold="test", expert="replan")

    with make() as env:
        policy = load_policy("adapters/cookingworld-sft", env)
    (episode,) = rollout(make, policy, [SEED])
    write_gif(path, episode, functools.partial(gym.make, "CookingWorldText-v0", fold="test", render_mode="rgb_array"), fps=1)
    _shrink_film(path)


def lookahead(path: Path) -> None:
    """Draw the tree of a decision in which a search takes another action than the model alone would."""

    def make() -> gym.Env[Any, Any]:
        return gym.make("CookingWorldText-v0", fold="train", expert="off")

    with make() as env:
        policy = load_policy("benchmarks/adapters/cookingworld-start", env, lookahead="puct", simulations=16, dtype="bfloat16")
    assert isinstance(policy, LookAhead)
    with policy.wrap(make()) as env:
        turn = Turn(env.reset(seed=0)[0], np.random.default_rng(0), episode="of the picture")
        for name in PLAYED:
            turn = turn.after(Decision(name), env.step(policy.spec.encode(name, dict(turn.obs)))[0])
        (decision,) = policy.decide([turn])
    with plt.rc_context(STYLE):
        figure, axis = plt.subplots(figsize=(11, 3.9), layout="constrained")
        draw_tree(axis, policy.tree(turn), decision.action)
        _save(figure, path)


def environments(path: Path) -> None:
    """Draw every registered environment as it renders itself, and all of them on one sheet."""
    names = playable_ids(gymnasium=False)
    (FOLDER / "environments").mkdir(exist_ok=True)
    drawn = []
    for name in names:
        with make_environment(name, render_mode="rgb_array") as env:
            obs, info = env.reset(seed=0)
            for step in range(SHOWN_AFTER.get(name, 3)):
                action = info["gold_path"][step] if "gold_path" in info else obs["valid_actions"][0]
                obs, *_ = env.step(env.get_wrapper_attr("text_spec").encode(action, {}))
            image = Image.fromarray(env.render())
        _shrink(image, FOLDER / "environments" / f"{name}.png")
        drawn.append(image)
    columns, width, height, title, gap = 3, 400, 300, 30, 12
    rows = -(-len(names) // columns)
    sheet = Image.new("RGB", (columns * (width + gap) + gap, rows * (height + title + gap) + gap), PAPER)
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSans-Bold.ttf", 16)
    for place, (name, image) in enumerate(zip(names, drawn, strict=True)):
        x, y = gap + place % columns * (width + gap), gap + place // columns * (height + title + gap)
        pen.text((x + 2, y + 4), name, INK, font)
        image.thumbnail((width, height), Image.Resampling.LANCZOS)
        sheet.paste(image, (x + (width - image.width) // 2, y + title + (height - image.height) // 2))
        pen.rectangle((x, y + title, x + width, y + title + height), outline=LINE)
    _shrink(sheet, path)


def report(path: Path) -> None:
    """Play three policies in BabyAI, and take a picture of their report in Chromium."""
    browser = find_browser()
    if browser is None:
        print("report: Chromium is not installed; the picture stays as it is", file=sys.stderr)
        return

    def make() -> gym.Env[Any, Any]:
        return gym.make("BabyAIText-v0", task="goto", fold="test")

    with tempfile.TemporaryDirectory() as folder:
        with EpisodeStore(folder) as store, make() as env:
            for name in ("random", "adapters/babyai-sft", "gold"):
                for episode in rollout(make, load_policy(name, env), range(12)):
                    store.append(episode)
        page = write_report([folder], Path(folder) / "report.html", title="BabyAI, goto")
        with Browser(browser) as window:
            window.open(page.resolve().as_uri())
            window.picture(path, 1100, _top(window, "viewer") - 30)
            policy = "document.getElementById('pick-policy')"
            window.run(f"{policy}.value = [...{policy}.options].find((one) => one.value.includes('babyai-sft')).value")
            window.run(f"{policy}.dispatchEvent(new Event('change'))")
            window.run("document.getElementById('step').value = 2")
            window.run("document.getElementById('step').dispatchEvent(new Event('input'))")
            steps = path.with_name("report-steps.png")
            window.picture(steps, 1100, 830, _top(window, "viewer") - 10)
    for made in (path, steps):
        _shrink(Image.open(made), made)


def _wait_for(ready: Callable[[], bool]) -> None:
    """Return when something is ready; a `TimeoutError` after two minutes."""
    end = time.monotonic() + 120
    while not ready():
        if time.monotonic() > end:
            raise TimeoutError("expected a page within two minutes")
        time.sleep(0.5)


def _top(window: Browser, part: str) -> int:
    """Return how far down a part of the page begins, in pixels."""
    window.call("Emulation.setDeviceMetricsOverride", width=1100, height=900, deviceScaleFactor=1, mobile=False)
    return int(window.run(f"document.getElementById('{part}').getBoundingClientRect().top + window.scrollY"))


PICTURES = {
    "cooking.gif": cooking,
    "lookahead.png": lookahead,
    "first-table.png": first_table,
    "results.png": results,
    "reinforcement.png": reinforcement,
    "reinforcement_cookingworld.png": reinforcement_cookingworld,
    "trl.png": trl,
    "environments.png": environments,
    "report.png": report,
}
"""Files, and what makes each."""


def main(names: Sequence[str]) -> None:
    """Make the pictures of these names, without their endings, or all."""
    known = {Path(file).stem: file for file in PICTURES}
    for name in names:
        check_choice("picture", name, known)
    FOLDER.mkdir(exist_ok=True)
    for name in names or known:
        path = FOLDER / known[name]
        PICTURES[known[name]](path)
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
