"""Episodes as conversations with a player: the game that the bridges to other libraries play. It needs none of them."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium as gym

from gym_text.errors import EngineError, StepOrderError
from gym_text.spec import Observation, TextSpec
from gym_text_policies.answers import UnusableCount, reply_in_game
from gym_text_policies.data.rows import training_prompt
from gym_text_policies.game import MakeEnv
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policies.parsing import parse_action, read_answer
from gym_text_policies.policy import check_lists_actions, text_spec
from gym_text_policies.records import Message


class Conversation:
    """An environment and the episode that is played in it: `begin` and `play` return the next text for the player.

    So many unusable answers in a row as `gym_text_policies.answers.MOST_UNUSABLE` says end an episode. An error of the environment
    ends it, too, and closes the environment; the next `begin` makes another.

    Args:
        make_env: Makes the environment.
        strategy: The prompts' template.
        calls: Whether the player answers by calls of a tool.

    Raises:
        UsageError: If there is no such strategy, it shows examples, which the bridges do not collect, or it asks for other answers.
    """

    def __init__(self, make_env: MakeEnv, strategy: str = "chat", *, calls: bool = False) -> None:
        self._make_env = make_env
        self._prompt = training_prompt(PolicyConfig("conversation", strategy=strategy, mode="tool" if calls else "text"))
        self._unusable_count = UnusableCount()
        self._lock = threading.RLock()
        self._env: gym.Env[Any, Any] | None = None
        self._before: Observation | None = None
        self.spec: TextSpec
        """What the environment tells its players."""
        self.obs: Observation = {}
        """The last observation."""
        self.info: dict[str, Any] = {}
        """What the environment gave beside it."""
        self.actions: list[str] = []
        """The names of the actions that were played."""
        self.reward = 0.0
        """The last answer's reward; 0 if it could not be used."""
        self.score = 0.0
        """Sum of the rewards."""
        self.end: str | None = "closed"
        """An `Outcome`, ``unusable_answers`` or ``closed``; None while an episode goes on."""

    def begin(self, seed: int | None) -> str:
        """Begin the episode of a level, and return the first text for the player.

        Args:
            seed: The level's seed; None lets the environment draw one.

        Raises:
            UsageError: If the strategy lists actions and the game takes any words.
        """
        with self._closing():
            self._unusable_count = UnusableCount()
            self._before, self.info, self.actions, self.reward, self.score, self.end = None, {}, [], 0.0, 0.0, None
            if self._env is None:
                self._env = self._make_env()
                self.spec = text_spec(self._env)
                if self._prompt.needs_names:
                    check_lists_actions(self.spec, f"strategy {self._prompt.config['strategy']!r}")
            self.obs, self.info = self._env.reset(seed=seed)
            return self.text

    def play(self, answer: str, *, finish: str | None = None) -> str:
        """Play the action that an answer names, and return the next text for the player; see `step` and `text`."""
        with self._closing():
            self.step(answer, finish=finish)
            return self.text

    def step(self, answer: str, *, finish: str | None = None) -> bool:
        """Play the action that an answer names, and return whether it names one.

        The answer is parsed as in `rollout`: with a strategy that thinks it may be JSON or words, otherwise it is words. An answer
        that names no action, or several, changes nothing. Where the game takes any words, only an empty answer names no action.

        Args:
            answer: The player's answer.
            finish: How the answer ended; ``length``: it was cut off.

        Raises:
            StepOrderError: If there is no episode that goes on. The environment stays open.
        """
        with self._closing():
            if self._env is None or self.end is not None:
                closed = "the game was closed" if self.obs else "none has begun"
                what = closed if self.end == "closed" else f"it has ended: {self.end}"
                raise StepOrderError(f"step: expected an episode that goes on; {what}. Begin one by begin.")
            if self._prompt.thinks:
                name, _ = read_answer(answer, self.spec, self.obs, finish=finish)
            else:
                name = parse_action(answer, self.spec, self.obs, finish=finish)
            self.reward = 0.0
            if self._unusable_count.add(usable=bool(name)):
                self.end = "unusable_answers"
            if not name:
                return False
            obs, reward, terminated, truncated, info = self._env.step(self.spec.encode(name, self.obs))
            if not math.isfinite(reward):
                raise EngineError(f"step {self.steps + 1}: expected a finite reward; got {reward}.")
            self._before, self.obs, self.info = self.obs, obs, info
            self.actions.append(name)
            self.reward = float(reward)
            self.score += self.reward
            if terminated or truncated:
                lost = "lost" if info.get("success") is not None or info.get("failure") else "ended"
                self.end = "won" if self.success else lost if terminated else "truncated"
            return True

    @property
    def text(self) -> str:
        """The next text for the player: the observation, what is possible after an unusable answer, or whether the task is done.

        Where the strategy tells only what has changed, so does this; `messages` tells all.

        Raises:
            StepOrderError: Before the first `begin`.
        """
        if not self.obs:
            raise StepOrderError("text: expected an episode; none has begun. Begin one by begin.")
        if self.end is not None:
            done = "you have done the task" if self.success else "you have not done the task"
            return f"{self.obs['text'].strip()}\n\nThe game is over: {done}."
        if self._unusable_count.in_a_row:
            return reply_in_game(self.spec, self.obs)
        return self._prompt.render(self.spec, self.obs, before=self._before)[-1]["content"]

    def messages(self) -> tuple[str, str]:
        """Return the system prompt, and the current observation as a text."""
        messages = self._prompt.render(self.spec, self.obs)
        return "\n\n".join(m["content"] for m in messages if m["role"] == "system"), messages[-1]["content"]

    def chat(self) -> list[Message]:
        """Return the messages with which the conversation begins."""
        system, text = self.messages()
        return [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": text}]

    @property
    def steps(self) -> int:
        """Number of actions that were played."""
        return len(self.actions)

    @property
    def unusable(self) -> int:
        """Number of answers that named no possible action, or several; see `gym_text_policies.answers`."""
        return self._unusable_count.total

    @property
    def success(self) -> bool:
        """Whether the task is done."""
        return bool(self.info.get("success"))

    @property
    def metrics(self) -> dict[str, float]:
        """How the episode stands: ``success`` (1 or 0), ``steps`` and ``unusable``."""
        return {"success": float(self.success), "steps": self.steps, "unusable": self.unusable}

    @property
    def truncated(self) -> bool:
        """Whether a limit has ended the episode, of steps or of unusable answers."""
        return self.end in ("truncated", "unusable_answers")

    def close(self) -> None:
        """End the episode and close the environment, after the step that is being played."""
        with self._lock:
            env, self._env, self.end = self._env, None, self.end or "closed"
            if env is not None:
                with contextlib.suppress(Exception):  # it may be broken
                    env.close()

    @contextlib.contextmanager
    def _closing(self) -> Iterator[None]:
        """Let whoever closes the game wait. An error of the game ends the episode and closes the environment."""
        with self._lock:
            try:
                yield
            except StepOrderError:
                raise
            except BaseException:
                self.end = self.end or "error"
                self.close()
                raise
