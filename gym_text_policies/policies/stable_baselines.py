"""`StableBaselinesPolicy`: a model that stable-baselines3 or sb3-contrib has saved, in the encoding that it was trained on."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformAction

from gym_text.errors import UsageError, import_extra
from gym_text.spaces import ActionNames
from gym_text.wrappers import EncodeText, History
from gym_text.wrappers.encode_text import MOST_NAMES, NAME_LENGTH
from gym_text_policies.files.digests import file_digest
from gym_text_policies.policy import Policy, decision_of, text_spec
from gym_text_policies.records import Decision, Turn

_one_at_a_time = threading.RLock()


class StableBaselinesPolicy(Policy):
    """Plays a saved PPO, A2C, DQN, SAC, TD3 or MaskablePPO: the model's most probable action, or one drawn as in training.

    The model was trained on an environment in `EncodeText`, with `History` or without; their arguments are read from its spaces.
    Or it was trained on the environment that
    `DescribeObservation` wraps here. MaskablePPO gets the mask of the valid actions, as ``env.action_masks()`` gives it.
    Another model may choose an index beyond them: that is an unusable answer, which the game answers.
    A model that was trained with ``actions="index"`` also plays the game with ``actions="text"``, by the names of its actions.
    How many actions there may be is not compared then: a model never plays a valid action beyond its own number of them.

    A file of stable-baselines3 contains pickled objects: load only what you trust.

    Args:
        path: The file that ``model.save`` wrote. For a model that was trained behind `VecNormalize`, a comma and the file that
            ``VecNormalize.save`` wrote follow: ``model.zip,vecnormalize.pkl``.
        env: The environment to play.
        deterministic: Whether the model plays its most probable action, as in stable-baselines3's ``evaluate_policy``, or draws an
            action. A model that has learnt to explore can be far better, or far worse, if its actions are drawn.
        seed: Seed of the draws.

    Raises:
        UsageError: If the file cannot be read, the model was trained on other observations or actions, or the statistics of its
            `VecNormalize` are missing. The file of a DQN, SAC or TD3 does not always show that they are.
        MissingDependencyError: If stable-baselines3 or sb3-contrib is not installed.
    """

    def __init__(self, path: str | Path, env: gym.Env[Any, Any], *, deterministic: bool = True, seed: int = 0) -> None:
        super().__init__(text_spec(env), seed=seed)
        self._deterministic = deterministic
        path, _, statistics = str(path).partition(",")
        self._model, self._file = _load(path), file_digest(path)
        self._statistics = statistics and file_digest(statistics)
        self._normalised = normaliser(self._model, f"sb3:{path}", _read_statistics(statistics) if statistics else None)
        self._actions = self.spec
        if self.spec.encoding == "text" and self.spec.lists_actions and isinstance(self._model.action_space, spaces.Discrete):
            self._actions = dataclasses.replace(self.spec, encoding="index")
            env = TransformAction(env, lambda index: index, self._model.action_space)  # its spaces alone are read
        if self._model.action_space != env.action_space:
            raise UsageError(
                f"sb3:{path}: expected an environment with the actions of its training, {self._model.action_space}; "
                f"got {env.action_space}. An option such as ?actions=index chooses them."
            )
        self._history, self._encode = _encoding(self._model.observation_space, env, path)
        self._masks = type(self._model).__name__ == "MaskablePPO"

    @property
    def config(self) -> dict[str, Any]:
        """The algorithm, and a hash of the file; the seed only if it draws."""
        statistics = {"statistics": self._statistics} if self._statistics else {}
        drawn = {} if self._deterministic else {"deterministic": False, "seed": self.seed}
        name = f"sb3:{type(self._model).__name__} {self._file[:6]}"
        return {"kind": "sb3", "name": name, "file": self._file, **statistics, **drawn}

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the history that the model was trained with, if any."""
        return History(env, self._history) if self._history else env

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Return the model's action of each turn."""
        return [self._decision(turn) for turn in turns]

    def _decision(self, turn: Turn) -> Decision:
        obs = turn.obs
        masks = {}
        if self._masks:
            count = int(self._model.action_space.n)
            masks["action_masks"] = np.arange(count) < (len(obs["valid_actions"]) if self._actions.encoding == "index" else count)
        draws = contextlib.nullcontext() if self._deterministic else _drawing_from(turn.rng, self._model.action_space)
        with draws:
            action, _ = self._model.predict(self._normalised(self._encode(dict(obs))), deterministic=self._deterministic, **masks)
        return decision_of(action, self._actions, obs)


@contextlib.contextmanager
def _drawing_from(rng: np.random.Generator, space: spaces.Space[Any]) -> Iterator[None]:
    """Seed the global random generators and a space from `rng` while the block runs, so that its draws depend on `rng` alone."""
    import torch

    seed = int(rng.integers(2**32))
    with _one_at_a_time, torch.random.fork_rng([]):
        python, numpy = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed)
        space.seed(seed)
        torch.default_generator.manual_seed(seed)  # the model is on the CPU
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _load(path: str) -> Any:
    """Return the model of a file; the class of its policy says which algorithm saved it."""
    sb3 = import_extra("stable_baselines3", "sb3")
    contrib = import_extra("sb3_contrib", "sb3")
    from stable_baselines3.common.save_util import load_from_zip_file

    try:
        data, _, _ = load_from_zip_file(path, device="cpu")
    except (OSError, ValueError) as error:
        raise UsageError(f"sb3:{path}: expected a file that stable-baselines3's model.save wrote; {error}.") from error
    data = data or {}
    policy = data.get("policy_class")
    names = [kind.__name__ for kind in policy.__mro__] if isinstance(policy, type) else []
    if "RecurrentActorCriticPolicy" in names:
        raise UsageError(f"sb3:{path}: expected a model without a state of its own; got one of RecurrentPPO. Take History instead.")
    if "MaskableActorCriticPolicy" in names:
        algorithm = contrib.MaskablePPO
    elif "ActorCriticPolicy" in names:
        algorithm = sb3.PPO if "clip_range" in data else sb3.A2C
    else:
        algorithm = next((getattr(sb3, name) for name in ("DQN", "SAC", "TD3") if f"{name}Policy" in names), None)
    if algorithm is None:
        raise UsageError(f"sb3:{path}: expected a PPO, A2C, DQN, SAC, TD3 or MaskablePPO; got a model with the policy {policy!r}.")
    return algorithm.load(path, device="cpu")


def _read_statistics(path: str) -> Any:
    """Return the object in a file of `VecNormalize`, by stable-baselines3's own loader. The file is as trusted as the model's."""
    from stable_baselines3.common.save_util import load_from_pkl

    try:
        with open(path, "rb") as file:
            return load_from_pkl(file)
    except Exception as error:
        raise UsageError(f"sb3: expected behind the comma a file that VecNormalize.save wrote; got {path}: {error!r}.") from error


def normaliser(model: Any, what: str, statistics: Any = None) -> Callable[[Any], Any]:
    """Return the function that normalises an observation as in the training of a model, by the model's `VecNormalize`.

    Raises:
        UsageError: If the model was trained behind `VecNormalize`, and these are not its statistics; `what` names the model.
    """
    if statistics is not None and getattr(statistics, "observation_space", None) == model.observation_space:
        return statistics.normalize_obs  # type: ignore[no-any-return]
    raw = getattr(model, "_last_original_obs", None)
    learns_from_buffer = hasattr(model, "learning_starts")  # it keeps the last raw observation without VecNormalize, too
    is_raw = raw is None or (learns_from_buffer and (_fits(model._last_obs, model) or not _fits(raw, model)))
    if statistics is None and is_raw:
        return lambda observation: observation
    raise UsageError(
        f"{what}: expected the statistics of VecNormalize, behind which it was trained, for {model.observation_space}; got "
        f"{statistics or 'none'}. VecNormalize.save saves them: load sb3:model.zip,vecnormalize.pkl."
    )


def _fits(batch: Any, model: Any) -> bool:
    """Return whether the first of a batch of observations lies in the space of a model's observations."""
    first = {key: rows[0] for key, rows in batch.items()} if isinstance(batch, dict) else batch[0]
    return first in model.observation_space


def _encoding(trained: spaces.Space[Any], env: gym.Env[Any, Any], path: str | Path) -> tuple[int, Callable[[Any], Any]]:
    """Return the length of the history that a model was trained with, and the function that encodes an observation for it."""
    shown = env.observation_space
    if isinstance(shown, spaces.Dict) and "observation" in shown.spaces and shown["observation"] == trained:
        return 0, lambda obs: np.asarray(obs["observation"])
    if isinstance(trained, spaces.Dict) and isinstance(trained.spaces.get("text"), spaces.Box):
        for history, arguments in _arguments(trained, env):
            encoder = EncodeText(History(env, history) if history else env, **arguments)
            if encoder.observation_space == trained:
                return history, encoder.observation
    raise UsageError(
        f"sb3:{path}: expected a model that was trained on this environment in EncodeText, with History or without; "
        f"it was trained on {trained}."
    )


def _arguments(trained: spaces.Dict, env: gym.Env[Any, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the settings that may have made the spaces of a model: the length of its history, and arguments of `EncodeText`."""
    text: Any = trained["text"]
    (length,), greatest = text.shape, int(text.high.flat[0])
    shown: Any = env.observation_space
    lists: list[Any] = [
        trained[key] for key, space in shown.spaces.items() if isinstance(space, ActionNames) and key in trained.spaces
    ]
    rows = int(env.action_space.n) if isinstance(env.action_space, spaces.Discrete) else MOST_NAMES
    arguments: dict[str, Any] = {"vocabulary": greatest + 1, "length": length, "names": bool(lists)}
    if "history" not in trained.spaces:
        yield 0, arguments | ({"name_length": lists[0].shape[0] // rows} if lists else {})
        return
    (size,) = trained["history"].shape or (0,)
    lengths = {n: size // n - length for n in range(size // (length + 1), 0, -1) if size % n == 0}
    # the space has only the history's total length: the usual length is tried first
    for n, name_length in sorted(lengths.items(), key=lambda item: item[1] != NAME_LENGTH):
        yield n, arguments | {"name_length": name_length}
