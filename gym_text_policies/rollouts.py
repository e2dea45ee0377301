"""`rollout`: the one loop in which policies play environments."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from gym_text.errors import PolicyError, UsageError, check_int
from gym_text.folds import MAX_SEED
from gym_text_policies.files.json_data import checked_decision
from gym_text_policies.game import Game, MakeEnv, is_of_episode
from gym_text_policies.policy import Policy
from gym_text_policies.records import Decision, Episode

_TABLES = itertools.count()


def rollout(
    make_env: MakeEnv,
    policy: Policy,
    seeds: Iterable[int],
    *,
    workers: int = 1,
    num_envs: int = 8,
) -> Iterator[Episode]:
    """Play one episode for each seed, and yield each when it ends.

    Episodes that wait for a decision are in one queue. Each worker takes up to `num_envs` of them, asks the policy for their
    decisions in one call, plays a step in each, and puts them back into the queue. ``workers * num_envs`` episodes run at once, or
    twice as many with several workers: then no worker waits while the last episodes end. The process may have room for fewer
    (`TextEnv.most_at_once`). A model in this process is fastest with one worker and several environments. A model of a provider
    is fastest with many workers and one environment each, because a slow answer then delays only its episode. Neither number
    changes an episode, except for the last digits of probabilities. `ProcessEngine` uses several cores.

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
    at_once = workers * num_envs * (1 if workers == 1 else 2)
    numbers: Iterable[int] = map(_seed, seeds)
    numbers = list(numbers) if isinstance(seeds, Collection) else numbers  # a wrong seed is refused before the first episode
    table = _Table(make_env, policy, iter(numbers), at_once)
    try:
        yield from _play(table, num_envs) if workers == 1 else _play_in_threads(table, workers, num_envs)
    finally:
        table.close()


def _seed(seed: int) -> int:
    """Return a seed as an integer of Python, because JSON and Gymnasium take no NumPy integers."""
    return check_int("seed", seed, 0, MAX_SEED)


class _Table:
    """The games, the queue of those that wait for a decision, and the remaining seeds.

    A game is in the queue, or taken by one worker, or finished because there is no seed left.
    """

    def __init__(self, make_env: MakeEnv, policy: Policy, seeds: Iterator[int], size: int) -> None:
        self.policy = policy
        self.stopped = False
        self._make_env = make_env
        self._seeds = seeds
        self._size = size
        self._waiting: deque[Game] = deque()
        self._games: list[Game] = []
        self._name = next(_TABLES)
        self._numbers = itertools.count()
        self._playing = 0
        self._changed = threading.Condition()

    def take(self, most: int) -> list[Game]:
        """Return up to `most` waiting games. New ones are made while there is room. An empty list means that all is played."""
        with self._changed:
            while not self.stopped:
                enough = max(most, len(self._waiting) + 1)  # one more than needed, so that no worker waits for a game to be made
                while len(self._games) < self._size and len(self._waiting) < enough:
                    seed = next(self._seeds, None)
                    if seed is None:
                        self._size = len(self._games)
                    else:
                        self._open(seed)
                if self._waiting:
                    taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
                    self._playing += len(taken)
                    return taken
                if not self._playing:
                    break
                self._changed.wait()
            return []

    def put_back(self, game: Game) -> None:
        """Put a game back into the queue, after a step or an episode. After an episode it needs another seed."""
        with self._changed:
            self._playing -= 1
            if game.turn is None:
                seed = next(self._seeds, None)
                if seed is not None:
                    game.seed = seed
                    self._waiting.append(game)
            else:
                self._waiting.append(game)
            self._changed.notify_all()

    def number(self) -> str:
        """Return a name for a new episode; it is unique in this process."""
        return f"{self._name}-{next(self._numbers)}"

    def close(self) -> None:
        """Release waiting workers and close the environments."""
        with self._changed:
            self.stopped = True
            self._changed.notify_all()
        for game in self._games:
            game.close()

    def _open(self, seed: int) -> None:
        game = Game(self._make_env, self.policy, seed)
        if not self._games and game.most_at_once is not None:
            self._size = min(self._size, game.most_at_once)
        self._games.append(game)
        self._waiting.append(game)


def _play(table: _Table, num_envs: int) -> Iterator[Episode]:
    """Take games, decide, play a step in each, and put them back. Yield the episodes that end."""
    while games := table.take(num_envs):
        ready = []
        for game in games:
            error = None if game.turn else game.begin(table.number())
            if error:
                yield _end(game, table, error)
            else:
                ready.append(game)
        decisions = _decide(table.policy, ready)
        for game, decision in zip(ready, decisions, strict=True):
            error = decision if isinstance(decision, Exception) else game.step(decision)
            if error or game.over:
                yield _end(game, table, error)
            else:
                table.put_back(game)


def _play_in_threads(table: _Table, workers: int, num_envs: int) -> Iterator[Episode]:
    """Run `_play` in several threads and yield their episodes."""
    ended: queue.Queue[Episode | BaseException | None] = queue.Queue()

    def work() -> None:
        try:
            for episode in _play(table, num_envs):
                ended.put(episode)
        except BaseException as error:  # is raised in the caller's thread
            ended.put(error)
        finally:
            ended.put(None)

    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()  # a daemon, so that a hanging provider does not delay Ctrl-C
    running = workers
    while running:
        message = ended.get()
        if message is None:
            running -= 1
        elif isinstance(message, BaseException):
            raise message
        else:
            yield message


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


def _end(game: Game, table: _Table, error: Exception | None) -> Episode:
    """Return the record of an episode that has ended, and put the game back for the next episode."""
    episode = game.end(error)
    table.put_back(game)
    return episode
