"""Why is evaluation worse than collection? Causes in CookingWorld at the registered parameters, one switched at a time.

The recipe whose causes are separated: collect an expert's episodes, fine-tune a model on them, and let it play with a limit of 16
steps, prompts cut at a length, and answers of at most 15 tokens, drawn or greedy. Without ``--adapters`` no model runs::

    python benchmarks/evaluation_gap.py
    python benchmarks/evaluation_gap.py --adapters adapters/babyai-sft runs/gold/adapter --environments "BabyAIText-v0?task=goto"
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
from helpers.harness import command, options, play_variants, run, table, write

import gym_text  # noqa: F401  registers the environments
from gym_text.textworld_express.engine import ExpressGame
from gym_text_policies import Episode, load_policy, rollout
from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.experiments.bench_table import versions
from gym_text_policies.policies.config import TRAINED
from gym_text_policies.policies.mixed import MixedPolicy
from gym_text_policies.policy import text_spec

ENV_ID = "CookingWorldText-v0"
FOLDS = ("train", "dev", "test")
LIMITS = (16, 50)
"""The recipe's limit of steps, and the environment's."""
WINDOWS = (512, 1024, 2048)
ANSWER_TOKENS = 15
PREPARATION = re.compile(r"(?P<verb>chop|slice|dice|cook) (?P<ingredient>.+?)(?: in (?P<appliance>\w+))?")
BY = (5, 10, 20)
"""Decisions by which a player may have left the states of the gold path."""


@dataclass(frozen=True)
class Config:
    """Which causes to measure, and on how many episodes."""

    levels: int = 1000
    """Levels of each fold whose gold path is read."""
    prompt_levels: int = 60
    """Levels of each fold whose prompts are counted."""
    play_levels: int = 300
    """Levels of the train fold that players with errors play."""
    errors: tuple[float, ...] = (0.02, 0.05, 0.1)
    """Their error rates: the probability of any action in place of the expert's."""
    adapters: tuple[str, ...] = ()
    """Adapters to play greedily and drawn, side by side: as one trained on gold data alone, and one on noisy data."""
    environments: tuple[str, ...] = ("BabyAIText-v0?task=goto",)
    """What adapters play, on the test fold."""
    episodes: int = 50
    """Episodes of each adapter and environment, greedy and drawn."""
    folder: str = "runs/evaluation-gap"
    """Episodes of the adapters; a second run goes on."""


@dataclass(frozen=True)
class GoldPath:
    """The engine's own solution of a level, played as it is."""

    actions: tuple[str, ...]
    valid: tuple[bool, ...]
    """Whether each was valid when it was played."""
    won: bool


# ---------------------------------------------------------------- gold paths: limits, invalid steps, long answers


def gold_paths(fold: str, levels: int) -> Iterator[GoldPath]:
    """Play the engine's solutions of a fold's first levels."""
    env: Any = gym.make(ENV_ID, fold=fold, expert="off").unwrapped
    game = ExpressGame(env.game, env.game_parameters)
    for seed in game.seeds(fold)[:levels]:
        actions, state = game.gold_path(seed, fold)
        valid = []
        for action in actions:
            valid.append(action in state.valid_actions)
            state = game.step(action)
        yield GoldPath(actions, tuple(valid), state.success)


EVALUATORS: dict[str, Callable[[GoldPath, float], bool]] = {
    "plays each step": lambda path, limit: path.won and len(path.actions) <= limit,
    "leaves out steps that are not valid": lambda path, limit: path.won and sum(path.valid) <= limit,
    "ends the episode at a step that is not valid": lambda path, limit: path.won and all(path.valid) and len(path.actions) <= limit,
}
"""What an evaluator does with a gold path, and whether it then wins within a limit of steps."""


def path_figures(paths: Sequence[GoldPath], tokenizer: Any) -> dict[str, Any]:
    """Return what a fold's gold paths say of limits, of steps that are not valid, and of answers of few tokens."""
    lengths = sorted(len(path.actions) for path in paths)
    actions = [action for path in paths for action in path.actions]
    tokens = {action: len(tokenizer(action, add_special_tokens=False)["input_ids"]) + 1 for action in set(actions)}
    return {
        "levels": len(paths),
        "length": {"least": lengths[0], "median": lengths[len(lengths) // 2], "most": lengths[-1]},
        "within_17_steps": share(length <= 17 for length in lengths),
        "won": {
            name: {str(limit): share(wins(path, limit) for path in paths) for limit in (*LIMITS, float("inf"))}
            for name, wins in EVALUATORS.items()
        },
        "paths_with_invalid_steps": share(not all(path.valid) for path in paths),
        "invalid_steps": share(valid for path in paths for valid in map(lambda ok: not ok, path.valid)),
        "answers_too_long": share(tokens[action] > ANSWER_TOKENS for action in actions),
        "levels_with_an_answer_too_long": share(any(tokens[action] > ANSWER_TOKENS for action in path.actions) for path in paths),
        "longest_answer": max(tokens.values()),
    }


def share(truths: Iterable[bool]) -> float:
    """Return the share of the values that are true."""
    found = list(truths)
    return sum(found) / len(found)


# ---------------------------------------------------------------- recipes


def preparations(path: GoldPath) -> list[tuple[str, frozenset[str]]]:
    """Return each ingredient that a gold path cuts or cooks, and how."""
    how: dict[str, set[str]] = {}
    for action in path.actions:
        if found := PREPARATION.fullmatch(action):
            how.setdefault(found["ingredient"], set()).add(found["appliance"] or found["verb"])
    return [(ingredient, frozenset(steps)) for ingredient, steps in how.items()]


def recipe_figures(paths: dict[str, list[GoldPath]]) -> dict[str, dict[str, Any]]:
    """Return for each fold how many recipes the train fold shows, and how many a player gets right who only remembers that fold."""
    prepared = {fold: [pair for path in found for pair in preparations(path)] for fold, found in paths.items()}
    counts: dict[str, Counter[frozenset[str]]] = {}
    for ingredient, how in prepared["train"]:
        counts.setdefault(ingredient, Counter())[how] += 1
    usual = {ingredient: found.most_common(1)[0][0] for ingredient, found in counts.items()}
    return {
        fold: {
            "preparations": len(set(pairs)),
            "ingredient_in_train": share(ingredient in counts for ingredient, _ in pairs),
            "preparation_in_train": share(how in counts.get(ingredient, ()) for ingredient, how in pairs),
            "as_most_often_in_train": share(how == usual.get(ingredient) for ingredient, how in pairs),
        }
        for fold, pairs in prepared.items()
    }


# ---------------------------------------------------------------- prompts


def prompt_figures(player: str, fold: str, levels: int, tokenizer: Any) -> dict[str, Any]:
    """Return how many prompts of the append-only chat are longer than each window, where a baseline plays."""
    from gym_text_policies.backends.local.tokens import prompt_tokens

    make_env = partial(gym.make, ENV_ID, fold=fold, expert="path" if player == "gold" else "off")
    env, prompt = make_env(), training_prompt(TRAINED)
    counts, longest = [], []
    for episode in rollout(make_env, load_policy(player, env), range(levels)):
        prompts = list(prompts_of(episode, text_spec(env), TRAINED, prompt))[: episode.length]
        own = [len(prompt_tokens(tokenizer, messages)) for messages in prompts]
        counts += own
        longest.append(max(own))
    env.close()
    return {
        "player": player,
        "fold": fold,
        "prompts": len(counts),
        "longest": max(counts),
        "longer_than": {str(window): share(count > window for count in counts) for window in WINDOWS},
        "episodes_with_one_longer_than": {str(window): share(count > window for count in longest) for window in WINDOWS},
    }


# ---------------------------------------------------------------- states off the gold path


def seen(observation: Any) -> tuple[Any, ...]:
    """Return the state that a player sees: the room, the inventory and the valid actions."""
    return observation["look"], observation["inventory"], tuple(observation["valid_actions"])


def drift_figures(errors: Sequence[float], levels: int, all_levels: int) -> list[dict[str, Any]]:
    """Let an expert play levels with a known gold path. Some of its actions are random; after them the expert plans anew."""
    make_gold = partial(gym.make, ENV_ID, fold="train", expert="path", max_episode_steps=LIMITS[1])
    gold = {e.seed: e for e in rollout(make_gold, load_policy("gold", make_gold()), range(all_levels))}
    shown = {seen(step.observation) for episode in gold.values() for step in episode.steps}
    make_env = partial(gym.make, ENV_ID, fold="train", expert="replan", max_episode_steps=LIMITS[1])
    found = []
    for error in (0.0, *errors):
        policy = MixedPolicy(load_policy("gold", make_env()), noise=error)
        played = list(rollout(make_env, policy, range(levels)))
        found.append({"error_rate": error, **_drift([(e, gold[e.seed]) for e in played if e.error is None], shown)})
        found[-1]["expert_without_a_plan"] = sum(episode.error is not None for episode in played)
    return found


def _drift(pairs: Sequence[tuple[Episode, Episode]], shown: set[tuple[Any, ...]]) -> dict[str, Any]:
    """Return how often episodes leave the states of their level's gold path, and how often `shown`: those of all gold episodes."""
    left: list[int | None] = []  # the first decision in a state that is not on the gold path
    off, never_shown, other_history = [], [], []
    for episode, gold in pairs:
        own = {seen(step.observation) for step in gold.steps}
        states = [seen(step.observation) for step in episode.steps]
        outside = [state not in own for state in states]
        left.append(outside.index(True) + 1 if any(outside) else None)
        off += outside
        never_shown += [state not in shown for state in states]
        actions, right = ([step.decision.action for step in e.steps] for e in (episode, gold))
        other_history += [actions[:place] != right[:place] for place in range(len(actions))]
    won = [episode.outcome == "won" for episode, _ in pairs]
    return {
        "episodes": len(pairs),
        "left_by": {str(by): share(place is not None and place <= by for place in left) for by in BY},
        "left": share(place is not None for place in left),
        "decisions_off_the_gold_path": share(off),
        "decisions_no_gold_episode_shows": share(never_shown),
        "decisions_after_another_history": share(other_history),
        "won": {str(limit): share(w and e.length <= limit for w, (e, _) in zip(won, pairs, strict=True)) for limit in LIMITS},
        "won_without_leaving": share(w and place is None for w, place in zip(won, left, strict=True)),
    }


# ---------------------------------------------------------------- models


def adapter_table(config: Config) -> tuple[str, dict[str, Any]]:
    """Play adapters greedily and drawn on the same seeds; return the table in Markdown and as a record."""
    rows = {}
    for adapter in config.adapters:
        rows[f"{adapter}, greedy"] = {"model": adapter, "temperature": 0.0}
        rows[f"{adapter}, drawn"] = {"model": adapter, "temperature": 1.0}
    played = {"environments": config.environments, "folder": config.folder}
    text, record, _ = play_variants(rows, **played, episodes=config.episodes, llm_episodes=config.episodes)
    return text, {"rows": record["rows"]}


# ---------------------------------------------------------------- results


def percent(value: float) -> str:
    """Return a share as it is written."""
    return f"{100 * value:.1f} %"


def tables(record: dict[str, Any]) -> Iterator[str]:
    """Yield the tables in Markdown, and the sentences below them."""
    paths = record["paths"]
    won = {name: [percent(paths[fold]["won"][name][str(limit)]) for fold in paths for limit in LIMITS] for name in EVALUATORS}
    columns = ("gold path won within", *(f"{fold}, {limit} steps" for fold in paths for limit in LIMITS), "no limit")
    yield table(columns, ((f"evaluator {name}", *row, percent(paths["test"]["won"][name]["inf"])) for name, row in won.items()))
    yield "The last column is of the test fold. A limit of 16 in TextWorldExpress's own client ends an episode after 17 steps."
    columns = ("fold", "levels", "shortest, median, longest path", "within 17 steps", "steps that are not valid", "long answers")
    yield table((*columns, "longest"), (_path_row(fold, row) for fold, row in paths.items()))
    yield f"Long answers: of more than {ANSWER_TOKENS} tokens, the end of turn included."
    columns = ("fold", "preparations", "ingredient is in train", "prepared so in train", "prepared so in train most often")
    names = ("ingredient_in_train", "preparation_in_train", "as_most_often_in_train")
    recipes = record["recipes"].items()
    yield table(columns, ((fold, row["preparations"], *(percent(row[name]) for name in names)) for fold, row in recipes))
    columns = ("player", "fold", "prompts", *(f"over {window} tokens" for window in WINDOWS), "longest")
    yield table(columns, map(_prompt_row, record["prompts"]))
    columns = (
        *("error rate", "episodes", f"left the gold path's states by decision {', '.join(map(str, BY))}; ever"),
        *("decisions off them", "that no gold episode shows", "after another history"),
        *(f"won in {LIMITS[0]}, in {LIMITS[1]} steps", "won without leaving"),
    )
    yield table(columns, map(_drift_row, record["drift"]))


def _path_row(fold: str, row: dict[str, Any]) -> tuple[object, ...]:
    length = ", ".join(str(row["length"][name]) for name in ("least", "median", "most"))
    invalid = f"{percent(row['paths_with_invalid_steps'])} of paths, {percent(row['invalid_steps'])} of steps"
    long = f"{percent(row['answers_too_long'])}, in {percent(row['levels_with_an_answer_too_long'])} of levels"
    return fold, row["levels"], length, percent(row["within_17_steps"]), invalid, long, row["longest_answer"]


def _prompt_row(row: dict[str, Any]) -> tuple[object, ...]:
    over, episodes = row["longer_than"], row["episodes_with_one_longer_than"]
    shares = (f"{percent(over[str(w)])}, in {percent(episodes[str(w)])} of episodes" for w in WINDOWS)
    return row["player"], row["fold"], row["prompts"], *shares, row["longest"]


def _drift_row(row: dict[str, Any]) -> tuple[object, ...]:
    left = ", ".join(percent(row["left_by"][str(by)]) for by in BY) + "; " + percent(row["left"])
    names = ("decisions_off_the_gold_path", "decisions_no_gold_episode_shows", "decisions_after_another_history")
    won = ", ".join(percent(row["won"][str(limit)]) for limit in LIMITS)
    shares = (percent(row[name]) for name in names)
    return row["error_rate"], row["episodes"], left, *shares, won, percent(row["won_without_leaving"])


def main() -> None:
    """Measure, and write the results."""
    config = options(Config, __doc__)
    from transformers import AutoTokenizer

    from gym_text_policies.backends.local.smollm2 import smollm2_folder

    tokenizer, began = AutoTokenizer.from_pretrained(smollm2_folder()), time.perf_counter()
    players = [("gold", fold) for fold in FOLDS] + [("random", "test")]
    paths = {fold: list(gold_paths(fold, config.levels)) for fold in FOLDS}
    record: dict[str, Any] = {
        "command": command(),
        "versions": versions(),
        "paths": {fold: path_figures(found, tokenizer) for fold, found in paths.items()},
        "recipes": recipe_figures(paths),
        "prompts": [prompt_figures(player, fold, config.prompt_levels, tokenizer) for player, fold in players],
        "drift": drift_figures(config.errors, config.play_levels, config.levels),
    }
    record["seconds"] = round(time.perf_counter() - began, 1)
    lines = ["\n\n".join(tables(record))]
    if config.adapters:
        text, record["adapters"] = adapter_table(config)
        lines += ["", text]
    lines += ["", f"Made by `{record['command']}` in {record['seconds']:.0f} s without what models take."]
    write("evaluation_gap", "\n".join(lines), record)


if __name__ == "__main__":
    run(main)
