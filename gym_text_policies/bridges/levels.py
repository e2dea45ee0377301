"""Levels as rows of a file, as the trainers of other libraries read them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text.folds import FOLDS, MAX_SEED, Fold
from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.environments import check_no_fold, environment_maker, fold_arguments, level_id, module_and_id
from gym_text_policies.environments.stored import check_chooses_game
from gym_text_policies.files.run_folders import write_atomically
from gym_text_policies.game import MakeEnv
from gym_text_policies.prompts import STRATEGIES

AGENT = "gym_text"
"""Name under which the other library finds the bridge."""


def level_row(environment: str, fold: Fold, seed: int) -> dict[str, Any]:
    """Return what names a level: ``id``, ``environment``, ``fold`` and ``seed``. All episodes of one ``id`` are a group."""
    return {"id": level_id(environment, fold, seed), "environment": environment, "fold": fold, "seed": seed}


def level_rows(environment: str, fold: Fold, seeds: Iterable[int], strategy: str = "chat") -> list[dict[str, Any]]:
    """Return a row for each level: ``id``, ``environment``, ``fold``, ``seed``, ``strategy``, and the first messages, ``prompt``.

    The ``id`` names the level. All episodes of one ``id`` are a group.

    Args:
        environment: A name, with arguments as in ``BabyAIText-v0?task=goto``.
        fold: ``train``, ``dev`` or ``test``.
        seeds: Seeds of the levels.
        strategy: The prompts' template: a strategy that ships, and shows no examples.

    Raises:
        UsageError: If there is no such environment, fold or strategy, a seed is not a whole number from 0 on, or `begin` would
            refuse the rows.
    """
    check_choice("strategy", strategy, STRATEGIES)
    rows = []
    module, _ = module_and_id(environment)
    check_chooses_game(environment, [module] if module else ())
    with contextlib.closing(Conversation(level_maker(environment, fold), strategy)) as game:
        for seed in seeds:
            level = {**level_row(environment, fold, check_int("seed", seed, 0, MAX_SEED)), "strategy": strategy}
            game.begin(level["seed"])
            rows.append({**level, "prompt": game.chat()})
    return rows


def begin(level: Mapping[str, Any], *, imports: Iterable[str] = ()) -> Conversation:
    """Begin the episode of a row of `level_rows`; see `game_of`."""
    game, seed = game_of(level, imports=imports)
    game.begin(seed)
    return game


def game_of(level: Mapping[str, Any], *, imports: Iterable[str] = ()) -> tuple[Conversation, int]:
    """Return the game of a row of `level_rows`, and the seed with which it begins.

    The row may come from elsewhere: it imports no module and reads no file.

    Args:
        level: The row.
        imports: Modules whose environments a row may name beside those that ship; they are imported.

    Raises:
        UsageError: If a column is missing or wrong, or the row's environment does more than choose a game.
    """
    missing = sorted({"environment", "fold", "seed"} - level.keys())
    if missing:
        raise UsageError(f"row: expected environment, fold and seed, as level_rows makes them; missing: {', '.join(missing)}.")
    strategy = level.get("strategy") or "chat"
    check_choice("strategy", strategy, STRATEGIES)
    environment = str(level["environment"])
    check_chooses_game(environment, imports)
    return Conversation(level_maker(environment, level["fold"]), strategy), check_int("seed", level["seed"], 0, MAX_SEED)


def level_maker(environment: str, fold: Fold) -> MakeEnv:
    """Return what makes the environment of a fold, which its name must not have.

    Raises:
        UsageError: If there is no such environment or fold, or the name has a fold.
    """
    check_choice("fold", fold, FOLDS)
    check_no_fold("environment", [environment], "chosen")
    return environment_maker(environment, **fold_arguments(environment, fold))


def verl_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `level_rows` with the columns of verl's `RLHFDataset`."""
    level = {key: row[key] for key in ("id", "environment", "fold", "seed", "strategy")}
    return {
        "data_source": row["environment"],
        "agent_name": AGENT,
        "prompt": row["prompt"],
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": row["seed"], **level},
    }


def skyrl_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `level_rows` with the columns of SkyRL's `PromptDataset`."""
    return {"data_source": row["environment"], "env_class": AGENT, **row}


def nemo_gym_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of `level_rows` as a row of NeMo Gym, for its agent ``gym_text_agent``. `/reset` adds the first observation."""
    level = {key: value for key, value in row.items() if key != "prompt"}
    system = [message for message in row["prompt"] if message["role"] == "system"]
    agent = {"type": "responses_api_agents", "name": f"{AGENT}_agent"}
    return {**level, "responses_create_params": {"input": system}, "agent_ref": agent}


COLUMNS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "verl": verl_row,
    "skyrl": skyrl_row,
    "nemo_gym": nemo_gym_row,
}
"""For each library the function that makes its columns."""


def write_levels(
    file: str | Path, library: str, environment: str, fold: Fold, seeds: Iterable[int], strategy: str = "chat"
) -> None:
    """Write levels to a file, for the trainer of verl or of SkyRL, or for NeMo Gym.

    Args:
        file: The new file. Its name ends in ``.parquet``; for NeMo Gym in ``.jsonl``.
        library: ``verl``, ``skyrl`` or ``nemo_gym``.
        environment: See `level_rows`.
        fold: See `level_rows`.
        seeds: See `level_rows`.
        strategy: See `level_rows`.

    Raises:
        UsageError: If the file exists, or an argument is wrong.
    """
    check_choice("library", library, COLUMNS)
    file, suffix = Path(file), ".jsonl" if library == "nemo_gym" else ".parquet"
    if file.exists() or file.suffix != suffix:
        raise UsageError(f"{file}: expected a new file whose name ends in {suffix}; it is there already, or has another name.")
    datasets = None if suffix == ".jsonl" else import_extra("datasets", "train")
    rows = [COLUMNS[library](row) for row in level_rows(environment, fold, seeds, strategy)]
    file.parent.mkdir(parents=True, exist_ok=True)
    if datasets is None:
        write_atomically(file, "".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        datasets.Dataset.from_list(rows).to_parquet(file)
