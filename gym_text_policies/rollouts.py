"""`rollout`: the one loop in which policies play environments."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from gym_text.errors import PolicyError, UsageError, check_int
from gym_text.folds import MAX_SEED
from gym_text_policies.files.json_data import checked_decision
from gym_text_policies.game import Game, MakeEnv, is_of_episode
from gym_text_policies.policy import Policy
from gym_text_policies.records import Decision, Episode

_ROLLOUTS = itertools.count()


def rollout(
    make_env: MakeEnv,
    policy: Policy,
    seeds: Iterable[int],
    *,
    workers: int = 1,
    num_envs: int = 8,
) -> Iterator[Episode]:
    """Play one episode for each seed, and yield each when it ends.

    Each worker plays `num_envs` episodes at once, and asks the policy for their decisions in one call. ``workers * num_envs``
    episodes run at once; the process may have room for fewer (`TextEnv.most_at_once`). A model in this process is fastest with one
    worker and several environments. A model of a provider is fastest with many workers and one environment each, because a slow
    answer then delays only its episode. Neither number changes an episode, except for the last digits of probabilities.
    `ProcessEngine` uses several cores.

    An exception of an environment or a policy ends only the episode in which it was raised. The record of this episode has
    `error`, which names environment, seed and step, and `traceback` if the exception is not one of this package's. The environment
    that raised is made anew for the next seed.

    Args:
        make_env: Makes an environment, without the policy's wrappers. It is called once for each episode that runs at once.
        policy: The policy that plays.
        seeds: Seeds of the episodes, as integers of Python or NumPy.
        workers: Number of threads that ask the policy. With 1 it is the caller's thread.
        num_envs: Environments of each worker that run at once: the most turns in a call of ``policy.decide``.

    Yields:
        The episodes, in the order in which they end. An episode that could not continue has `error` set.

    Raises:
        UsageError: If `workers` or `num_envs` is below 1, a seed is no integer from 0 on, or the policy has a wrong setting.
        BudgetError, StoreError, MissingDependencyError: If no other episode could be played either; see `gym_text.errors`.
    """
    if not callable(make_env):
        raise UsageError(
            f"make_env: expected a function without arguments that makes an environment; got {make_env!r}. "
            "environment_maker(name) makes one."
        )
    if workers < 1 or num_envs < 1:
        raise UsageError(f"rollout: expected workers and num_envs of at least 1; got workers={workers}, num_envs={num_envs}.")
    numbers: Iterable[int] = map(_seed, seeds)
    numbers = list(numbers) if isinstance(seeds, Collection) else numbers  # a wrong seed is refused before the first episode
    left = _Seeds(iter(numbers))
    if (first := next(left, None)) is None:
        return
    game = Game(make_env, policy, first)
    if (most := game.most_at_once) is not None:
        num_envs = min(num_envs, most)
        workers = min(workers, most // num_envs)
    yield from _play([game], left, num_envs) if workers == 1 else _play_in_threads(game, left, workers, num_envs)


def _seed(seed: int) -> int:
    """Return a seed as an integer of Python, because JSON and Gymnasium take no NumPy integers."""
    return check_int("seed", seed, 0, MAX_SEED)


class _Seeds(Iterator[int]):
    """The seeds that no worker has. Workers stop early if `stopped` is set."""

    def __init__(self, seeds: Iterator[int]) -> None:
        self.stopped = False
        self.making = threading.RLock()
        """Environments are made one after the other."""
        self._seeds = seeds
        self._lock = threading.Lock()
        self._rollout = next(_ROLLOUTS)
        self._numbers = itertools.count()

    def __next__(self) -> int:
        with self._lock:
            return next(self._seeds)

    def name(self) -> str:
        """Return a name for a new episode; it is unique in this process."""
        return f"{self._rollout}-{next(self._numbers)}"


def _play(games: list[Game], seeds: _Seeds, num_envs: int) -> Iterator[Episode]:
    """Begin, decide and play a step in each game, and yield the episodes that end, until no seed is left."""
    make_env, policy = games[0].make_env, games[0].policy
    try:
        while len(games) < num_envs and (seed := next(seeds, None)) is not None:
            with seeds.making:
                games.append(Game(make_env, policy, seed))
        playing = list(games)
        while playing and not seeds.stopped:
            ready = []
            for game in playing:
                error = None if game.turn else game.begin(seeds.name())
                if error:
                    yield game.end(error)
                else:
                    ready.append(game)
            for game, decision in zip(ready, _decide(policy, ready), strict=True):
                error = decision if isinstance(decision, Exception) else game.step(decision)
                if error or game.over:
                    yield game.end(error)
            for game in [game for game in playing if game.turn is None]:
                if (seed := next(seeds, None)) is None:
                    playing.remove(game)
                else:
                    game.seed = seed
    finally:
        for game in games:
            game.close()


def _play_in_threads(first: Game, seeds: _Seeds, workers: int, num_envs: int) -> Iterator[Episode]:
    """Run `_play` in several threads and yield their episodes."""
    ended: queue.Queue[Episode | BaseException | None] = queue.Queue()

    def work(game: Game | None) -> None:
        try:
            if game is None and (seed := next(seeds, None)) is not None:
                with seeds.making:
                    game = Game(first.make_env, first.policy, seed)
            if game is not None:
                for episode in _play([game], seeds, num_envs):
                    ended.put(episode)
        except BaseException as error:  # is raised in the caller's thread
            ended.put(error)
        finally:
            ended.put(None)

    for game in [first, *[None] * (workers - 1)]:
        threading.Thread(target=work, args=(game,), daemon=True).start()  # so that a hanging provider does not delay Ctrl-C
    try:
        while workers:
            message = ended.get()
            if message is None:
                workers -= 1
            elif isinstance(message, BaseException):
                raise message
            else:
                yield message
    finally:
        seeds.stopped = True


def _decide(policy: Policy, games: list[Game]) -> list[Decision | Exception]:
    """Decide for all games in one call. If it fails, decide one by one, so that only the failing episodes end."""
    if not games:
        return []
    start = time.perf_counter()
    try:
        decisions = _checked(policy, policy.decide([game.asked() for game in games]), len(games))
    except Exception as error:
        if not is_of_episode(error, deciding=True):
            raise
        return [error] if len(games) == 1 else [_decide(policy, [game])[0] for game in games]
    share = (time.perf_counter() - start) / len(games)
    return [replace(decision, seconds=share) for decision in decisions]


def _checked(policy: Policy, decisions: list[Decision], count: int) -> list[Decision]:
    """Return what a policy decided; raise `PolicyError` if it is not a decision for each turn, or cannot be stored."""
    name = type(policy).__name__
    if len(decisions) != count or not all(isinstance(decision, Decision) for decision in decisions):
        raise PolicyError(f"{name}.decide: expected a list with a Decision for each of {count} turns; got {str(decisions)[:200]}.")
    try:
        return [checked_decision(decision) for decision in decisions]
    except (TypeError, ValueError) as error:
        raise PolicyError(f"{name}.decide: {error}.") from None
