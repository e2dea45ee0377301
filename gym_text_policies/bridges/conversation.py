"""One episode as a conversation with a player: the game that the bridges to other libraries play. It needs none of them."""

from __future__ import annotations

import math
import threading

from gym_text.errors import EngineError, UsageError
from gym_text.spec import TextSpec
from gym_text_policies.bridges.answers import MOST_UNUSABLE, Tally, told
from gym_text_policies.game import MakeEnv
from gym_text_policies.policies.parsing import parse_action, read_answer
from gym_text_policies.policy import check_lists_actions, text_spec
from gym_text_policies.prompts import Prompt
from gym_text_policies.records import Message


def prompt_of(strategy: str) -> Prompt:
    """Return the prompts' template.

    Raises:
        UsageError: If there is no such strategy, or it shows examples, which the bridges do not collect.
    """
    prompt = Prompt(strategy)
    if prompt.uses_examples:
        raise UsageError(f"strategy: expected one that shows no examples; got {strategy!r}.")
    return prompt


class Conversation:
    """One episode as a conversation: `messages` begins it, and `play` takes an answer of the player and returns the next text.

    Args:
        make_env: Makes the environment.
        seed: The level's seed.
        strategy: The prompts' template.
        max_unusable: Number of unusable answers in a row after which the episode ends.

    Raises:
        UsageError: If the strategy shows examples, or lists actions in a game that takes any words, or a number is wrong.
    """

    def __init__(self, make_env: MakeEnv, seed: int, strategy: str = "chat", *, max_unusable: int = MOST_UNUSABLE) -> None:
        self._prompt = prompt_of(strategy)
        self._tally = Tally(max_unusable)
        self._lock = threading.Lock()
        self._env = make_env()
        try:
            self._spec: TextSpec = text_spec(self._env)
            if self._prompt.uses_names:
                check_lists_actions(self._spec, f"strategy {strategy!r}")
            self._obs, self._info = self._env.reset(seed=seed)
            self._messages = self._rendered()
        except BaseException:
            self.close()
            raise
        self.end: str | None = None
        """How the episode ended: ``won``, ``lost``, ``truncated`` or ``unusable_answers``; None while it goes on."""
        self.actions: list[str] = []
        """The names of the actions that were played."""
        self.score = 0.0
        """Sum of the rewards."""

    def messages(self) -> tuple[str, str]:
        """Return the system prompt, and the current observation as a text."""
        return self._messages

    def _rendered(self) -> tuple[str, str]:
        messages = self._prompt.render(self._spec, self._obs)
        return "\n\n".join(m["content"] for m in messages if m["role"] == "system"), messages[-1]["content"]

    def chat(self) -> list[Message]:
        """Return the messages with which the conversation begins."""
        system, text = self.messages()
        return [*([{"role": "system", "content": system}] if system else []), {"role": "user", "content": text}]

    def play(self, answer: str, *, finish: str | None = None) -> str:
        """Play the action that an answer names, and return the next text for the player.

        The answer is parsed as in `rollout`: with a strategy that thinks it may be JSON or words, otherwise it is words. An answer
        that names no action, or several, changes nothing; the next text then lists the possible actions. Where the game takes any
        words, only an empty answer names no action.

        Args:
            answer: The player's answer.
            finish: How the answer ended; ``length``: it was cut off.
        """
        with self._lock:  # whoever stops waiting for a step may close the game before the step ends
            return self._played(answer, finish)

    def _played(self, answer: str, finish: str | None) -> str:
        if self._prompt.thinks:
            name, _ = read_answer(answer, self._spec, self._obs, finish=finish)
        else:
            name = parse_action(answer, self._spec, self._obs, finish=finish)
        if self._tally.add(usable=bool(name)):
            self.end = "unusable_answers"
        if not name:
            return told(self._spec, self._obs)
        action = self._spec.encode(name, self._obs)
        self._obs, reward, terminated, truncated, self._info = self._env.step(action)
        self.actions.append(name)
        if not math.isfinite(reward):
            raise EngineError(f"step {self.steps}: expected a finite reward; got {reward}.")
        self.score += float(reward)
        if terminated or truncated:
            self.end = "won" if self.success else "truncated" if truncated and not terminated else "lost"
        self._messages = self._rendered()
        return self._messages[1]

    @property
    def spec(self) -> TextSpec:
        """What the environment tells its players."""
        return self._spec

    @property
    def steps(self) -> int:
        """Number of actions that were played."""
        return len(self.actions)

    @property
    def unusable(self) -> int:
        """Number of answers that named no possible action, or several; see `gym_text_policies.bridges.answers`."""
        return self._tally.total

    @property
    def success(self) -> bool:
        """Whether the task is done."""
        return bool(self._info.get("success"))

    def close(self) -> None:
        """Close the environment, after the step that is being played."""
        with self._lock:
            self._env.close()
