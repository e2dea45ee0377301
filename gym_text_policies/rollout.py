"""`rollout`: the one loop in which policies play environments."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium as gym

from gym_text import EpisodeError, UsageError
from gym_text.text_env import level_of
from gym_text_policies.policy import Policy, environment_config, episode_key, episode_rng
from gym_text_policies.records import Decision, Episode, Step, Turn, plain

MakeEnv = Callable[[], gym.Env[Any, Any]]
_TABLES = itertools.count()


def rollout(
    make_env: MakeEnv,
    policy: Policy,
    seeds: Iterable[int],
    *,
    workers: int = 1,
    batch: int = 8,
    watch: Callable[[int], None] | None = None,
) -> Iterator[Episode]:
    """Play one episode for each seed, and yield each when it ends.

    Episodes that wait for a decision are in one queue. Each worker takes up to `batch` of them, decides, plays a step in each, and
    puts them back. Up to ``workers * batch`` episodes run at once; with several workers twice as many, so that no worker is idle
    while the last episodes go on. For a model in this process, one worker and a batch are fastest. For a remote model, many workers
    and a batch of 1 are: a slow answer then delays only its own episode. Episodes do not depend on either number, except for the
    last digits of probabilities.

    Args:
        make_env: Makes an environment, without the policy's wrappers. It is called once for each episode that runs at once.
        policy: The policy that plays.
        seeds: Seeds of the episodes.
        workers: Number of threads that decide. With 1 the caller's thread decides.
        batch: Most turns in a call of ``policy.decide``.
        watch: Called after each call of ``policy.decide``, with the number of its turns.

    Yields:
        The episodes, in the order in which they end. An episode that could not continue has `error` set.

    Raises:
        UsageError: If `workers` or `batch` is below 1. Errors other than `EpisodeError` end the run; see `gym_text.errors`.
    """
    if not callable(make_env):
        raise UsageError(
            f"make_env: expected a function without arguments that makes an environment; got {make_env!r}. "
            "environment_maker(name) makes one."
        )
    if workers < 1 or batch < 1:
        raise UsageError(f"rollout: expected workers and batch of at least 1; got workers={workers}, batch={batch}.")
    at_once = workers * batch * (1 if workers == 1 else 2)
    table = _Table(make_env, policy, iter(seeds), at_once, watch or (lambda turns: None))
    try:
        yield from _play(table, batch) if workers == 1 else _play_in_threads(table, workers, batch)
    finally:
        table.close()


@dataclass
class _Game:
    """An environment, and the episode that is played in it."""

    env: gym.Env[Any, Any]
    environment: dict[str, Any]
    keys: tuple[str, ...]
    """The environment's own keys of the observation."""
    seed: int = 0
    turn: Turn | None = None
    info: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    level: int | None = None

    @property
    def over(self) -> bool:
        """Whether the last step ended the episode."""
        return bool(self.steps) and (self.steps[-1].terminated or self.steps[-1].truncated)


class _Table:
    """The games, the queue of those that wait for a decision, and the remaining seeds.

    A game is in the queue, or taken by one worker, or finished because there is no seed left.
    """

    def __init__(self, make_env: MakeEnv, policy: Policy, seeds: Iterator[int], size: int, watch: Callable[[int], None]) -> None:
        self.policy = policy
        self.watch = watch
        self.stopped = False
        self._make_env = make_env
        self._seeds = seeds
        self._size = size
        self._waiting: deque[_Game] = deque()
        self._games: list[_Game] = []
        self._name = next(_TABLES)
        self._numbers = itertools.count()
        self._playing = 0
        self._changed = threading.Condition()

    def take(self, most: int) -> list[_Game]:
        """Return up to `most` waiting games. New ones are made while there is room. An empty list means that all is played."""
        with self._changed:
            while not self.stopped:
                enough = max(most, len(self._waiting) + 1)  # one more than needed, until all games are made
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

    def put_back(self, game: _Game) -> None:
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
            game.env.close()

    def _open(self, seed: int) -> None:
        env = self._make_env()
        keys = tuple(env.observation_space.spaces) if isinstance(env.observation_space, gym.spaces.Dict) else ()
        wrapped = self.policy.wrap(env)
        game = _Game(wrapped, environment_config(wrapped), keys, seed)
        self._games.append(game)
        self._waiting.append(game)


def _play(table: _Table, batch: int) -> Iterator[Episode]:
    """Take games, decide, play a step in each, and put them back. Yield the episodes that end."""
    while games := table.take(batch):
        ready = []
        for game in games:
            error = None if game.turn else _begin(game, table.policy, table.number())
            if error:
                yield _end(game, table, error)
            else:
                ready.append(game)
        decisions = _decide(table.policy, ready)
        table.watch(len(decisions))
        for game, decision in zip(ready, decisions, strict=True):
            error = decision if isinstance(decision, EpisodeError) else _step(game, decision)
            if error or game.over:
                yield _end(game, table, error)
            else:
                table.put_back(game)


def _play_in_threads(table: _Table, workers: int, batch: int) -> Iterator[Episode]:
    """Run `_play` in several threads and yield their episodes."""
    ended: queue.Queue[Episode | BaseException | None] = queue.Queue()

    def work() -> None:
        try:
            for episode in _play(table, batch):
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


def _begin(game: _Game, policy: Policy, name: str) -> EpisodeError | None:
    game.steps = []
    rng = episode_rng(game.environment, policy.seed, game.seed)
    try:
        obs, game.info = game.env.reset(seed=game.seed)
    except EpisodeError as error:
        return error
    game.turn, game.level = Turn(obs, rng, name), level_of(game.env, game.seed)
    return None


def _decide(policy: Policy, games: list[_Game]) -> list[Decision | EpisodeError]:
    """Decide for all games in one call. If it fails, decide one by one, so that only the failing episodes end."""
    turns = [game.turn for game in games if game.turn]
    if not turns:
        return []
    start = time.perf_counter()
    try:
        decisions = policy.decide(turns)
    except EpisodeError as error:
        return [error] if len(games) == 1 else [_decide(policy, [game])[0] for game in games]
    if len(decisions) != len(turns) or not all(isinstance(decision, Decision) for decision in decisions):
        raise UsageError(
            f"{type(policy).__name__}.decide: expected a list with a Decision for each of {len(turns)} turns; got {decisions!r}."
        )
    share = (time.perf_counter() - start) / len(turns)
    return [replace(decision, seconds=share) for decision in decisions]


def _step(game: _Game, decision: Decision) -> EpisodeError | None:
    """Play the decision and record the step. Return the error that prevented it, if any."""
    assert game.turn is not None
    obs = game.turn.obs
    try:
        spec = game.env.get_wrapper_attr("text_spec")
        after, reward, terminated, truncated, info = game.env.step(spec.encode(decision.action, dict(obs)))
    except EpisodeError as error:
        return error
    earlier = game.steps[-1].score if game.steps else 0.0
    game.steps.append(
        Step(
            observation=_own(game, obs),
            decision=decision,
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=bool(info.get("success", False)),
            failure=bool(info.get("failure", False)),
            score=float(info.get("score", earlier + float(reward))),
            action_was_valid=bool(info.get("action_was_valid", True)),
            gold_action=game.info.get("gold_action"),
        )
    )
    game.info = info
    completions = (*game.turn.completions, decision.completion)
    game.turn = replace(game.turn, obs=after, step=game.turn.step + 1, completions=completions, last=decision)
    return None


def _end(game: _Game, table: _Table, error: EpisodeError | None) -> Episode:
    """Return the record of an episode that has ended, and put the game back for the next episode."""
    episode = Episode(
        key=episode_key(game.environment, table.policy.config, game.seed),
        environment=game.environment,
        policy=table.policy.config,
        seed=game.seed,
        steps=tuple(game.steps),
        last_observation=_own(game, game.turn.obs) if game.turn else {},
        level=game.level if game.turn else None,
        error=f"{type(error).__name__}: {error}" if error else None,
    )
    game.turn = None
    table.put_back(game)
    return episode


def _own(game: _Game, obs: Any) -> dict[str, Any]:
    """Return the environment's own keys of an observation, as plain JSON."""
    return {key: plain(obs[key]) for key in game.keys} if game.keys else {"observation": plain(obs)}
