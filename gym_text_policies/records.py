"""The records that travel between policies, the loop and the store: `Turn`, `Decision`, `Step`, `Episode`.

JSON stores a step as the difference to the step before: what stays the same, such as the beginning of a prompt, is stored once.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from gym_text_policies.files import json_data

Message = dict[str, str]
"""A message of a chat: ``role`` and ``content``. A message of the model may have ``reasoning``, its thought before the answer, and
``call``, the arguments of its tool call as JSON. The message behind a call has the role ``tool``."""
Outcome = Literal["won", "lost", "ended", "truncated", "error"]


@dataclass(frozen=True)
class Turn:
    """All that a policy may know when it decides. A policy keeps no other state between turns."""

    obs: Mapping[str, Any]
    """The observation of the wrapped environment."""
    rng: np.random.Generator
    """The generator of this turn. It depends only on the policy's seed, the environment, the episode's seed and the step."""
    episode: str = ""
    """Identifies the episode among the running ones."""
    step: int = 0
    """Number of steps before this one."""
    completions: tuple[str | None, ...] = ()
    """The model's text at each step before this one. Empty outside `rollout` and `Agent`."""
    thoughts: tuple[str | None, ...] = ()
    """What the model thought at each step before this one; see `Decision.reasoning`. Empty outside `rollout` and `Agent`."""
    last: Decision | None = None
    """The decision before this one. None at the first step, and outside `rollout` and `Agent`."""

    def after(self, decision: Decision, obs: Mapping[str, Any] | None = None) -> Turn:
        """Return the turn that follows a decision, with the same generator; without `obs`, with the same observation."""
        completions, thoughts = (*self.completions, decision.completion), (*self.thoughts, decision.reasoning)
        obs, step = self.obs if obs is None else obs, self.step + 1
        return dataclasses.replace(self, obs=obs, step=step, completions=completions, thoughts=thoughts, last=decision)


@dataclass(frozen=True)
class Tokens:
    """The tokens of a prompt and an answer by number, so that they need not be tokenised again."""

    prompt: tuple[int, ...]
    """The tokens that the model read."""
    said: tuple[int, ...]
    """The tokens that the model generated, the end of turn included if the model generated it."""
    log_probs: tuple[float, ...]
    """Log-probability of each token of `said` at play, in nats. In modes text and json: at the temperature of the draw, or at
    temperature 1 if the most probable token was taken. In ``choose``: among all tokens, at temperature 1;
    `Decision.probabilities` has the draw among the valid actions."""
    written: tuple[int, ...] = ()
    """Indices in `said` of the tokens that were written in the model's place, such as those that close a thought that was cut.
    Their log-probability is given as 0."""


@dataclass(frozen=True)
class Decision:
    """An action, and why the policy took it."""

    action: str
    """Name of the action."""
    valid: bool = True
    """False if the answer could not be used and `on_invalid` chose the action."""
    messages: tuple[Message, ...] = ()
    """The prompt."""
    completion: str | None = None
    """The model's text, or None if it generated none."""
    finish: str | None = None
    """Why the text ended, unless the model ended it: ``length`` (it reached `max_tokens`), ``refusal`` or ``content_filter``."""
    reasoning: str | None = None
    """What the model thought before it answered, or the part of the completion that is not the action, such as a reflection."""
    thought_cut: bool = False
    """Whether the thought reached its greatest length and was closed there."""
    invalid: str | None = None
    """Why an answer could not be used: ``cut``, ``empty``, ``several actions``, ``no action``, ``refusal`` or ``no call``."""
    retries: int = 0
    """Number of unusable answers before this one, after each of which the model was asked again."""
    probabilities: Mapping[str, float] | None = None
    """Probability of each valid action, or None if unknown."""
    probability_kind: str | None = None
    """What the probabilities mean, see `Answer.probability_kind`; ``not computed`` where the most probable action alone was looked
    for."""
    confidence: float | None = None
    """What the server of a typed decision calls its confidence, from 0 to 1; see `Answer.confidence`."""
    rounds: int = 0
    """Number of requests of a typed decision; more than 1 if the actions were too many for one question."""
    visits: Mapping[str, int] | None = None
    """Number of simulations that began with each action, if the policy looks ahead; `probabilities` is its prior."""
    values: Mapping[str, float] | None = None
    """Mean worth of the simulations through each action that was tried, in points of the game's score; the greatest worth if the
    policy looks ahead by best_of_n."""
    plan: tuple[str, ...] = ()
    """The fewest actions that are known to win, the first one now, if the policy looks ahead and a simulation has won."""
    model_calls: int = 0
    """Number of states about which a policy that looks ahead has asked its model; 0 for any other policy."""
    simulator_steps: int = 0
    """Number of steps that it has played in copies of the game."""
    tokens_in: int = 0
    """Tokens given to the model: the prompt's, and in ``choose`` also the candidates'."""
    tokens_cached: int = 0
    """The part of `tokens_in` that came from a cache."""
    tokens_out: int = 0
    """Tokens generated by the model, those of its thoughts included; 0 in ``choose`` without a thought."""
    tokens_reasoning: int = 0
    """The part of `tokens_out` that belongs to thoughts."""
    turns_dropped: int = 0
    """Number of turns that were dropped from the prompt, the oldest first, to fit the model's window."""
    seconds: float = 0.0
    """Seconds of the call of ``decide``, divided by the number of its turns."""
    cost: float = 0.0
    """Price in US dollars."""
    reference: str | None = None
    """The provider's id of the episode, if the provider gives one."""
    tokens: Tokens | None = None
    """The tokens of the prompt and of the answer, if the policy keeps them."""
    picture: str | None = None
    """SHA-256 of the picture that the model saw, before it was made smaller; see `picture_digest`. None if it saw none."""


@dataclass(frozen=True)
class Step:
    """A decision and its consequences."""

    observation: Mapping[str, Any]
    """The observation before the decision, as plain JSON: the environment's keys, without those of the policy's wrappers."""
    decision: Decision
    """The action, and why."""
    reward: float
    """The reward of this step."""
    terminated: bool
    """Whether the game was over after the step."""
    truncated: bool
    """Whether a limit ended the episode after the step."""
    success: bool | None
    """Whether the task was done after the step; None if the environment does not say."""
    failure: bool
    """Whether the task could no longer be done after the step."""
    score: float
    """The environment's score after the step, or the sum of rewards if it has none."""
    action_was_valid: bool
    """Whether the environment understood the action."""
    gold_action: str | None = None
    """Name of the expert's action before the step, or None if unknown."""


def _sum(name: str, doc: str) -> Any:
    return property(lambda episode: sum(getattr(step.decision, name) for step in episode.steps), doc=doc)


@dataclass(frozen=True)
class Episode:
    """A whole episode: its environment, policy and seed, its steps, and how it ended."""

    key: str
    """Hash of `environment`, `policy` and `seed`; it identifies the episode in a store."""
    environment: Mapping[str, Any]
    """The environment's id, keyword arguments, wrappers and limit, and a hash of its `TextSpec`."""
    policy: Mapping[str, Any]
    """The policy's resolved configuration."""
    seed: int
    """Seed of the environment's `reset`."""
    steps: tuple[Step, ...]
    """The steps, in order."""
    last_observation: Mapping[str, Any] = field(default_factory=dict)
    """The observation after the last step."""
    level: int | None = field(default=None, kw_only=True)
    """Number of the level that the seed plays; several seeds may play one level. None if the environment does not say."""
    error: str | None = None
    """The error that ended the episode early, with environment, seed and step; else None."""
    traceback: str | None = None
    """Files, lines and functions through which an unexpected error was raised, the innermost last; None for other errors."""

    @property
    def outcome(self) -> Outcome:
        """How the episode ended. An episode that is won at its last step is won, even if it is also truncated.

        A game that is over has ``ended`` if its environment does not say what a success is, and does not call it lost.
        """
        if self.error is not None:
            return "error"
        if self.steps and self.steps[-1].success:
            return "won"
        if not (self.steps and self.steps[-1].terminated):
            return "truncated"
        return "lost" if self.tells_success or self.steps[-1].failure else "ended"

    @property
    def tells_success(self) -> bool:
        """Whether the environment said if the task was done."""
        return any(step.success is not None for step in self.steps)

    @property
    def total_reward(self) -> float:
        """The return: the undiscounted sum of the rewards."""
        return float(sum(step.reward for step in self.steps))

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.steps)

    @property
    def invalid(self) -> int:
        """Number of steps with an unusable answer, or with an action that the environment did not understand."""
        return sum(not (step.decision.valid and step.action_was_valid) for step in self.steps)

    @property
    def invalid_reasons(self) -> dict[str, int]:
        """Number of answers that could not be used, by the reason; see `Decision.invalid`."""
        return dict(Counter(reason for step in self.steps if (reason := step.decision.invalid) is not None))

    @property
    def looks_ahead(self) -> bool:
        """Whether the policy has tried actions in copies of the game."""
        return any(step.decision.visits is not None for step in self.steps)

    tokens_in = _sum("tokens_in", "Tokens given to the model, over all steps.")
    tokens_out = _sum("tokens_out", "Tokens generated by the model, over all steps.")
    tokens_reasoning = _sum("tokens_reasoning", "The part of `tokens_out` that belongs to thoughts.")
    thoughts_cut = _sum("thought_cut", "Number of steps whose thought reached its greatest length.")
    model_calls = _sum("model_calls", "Number of states about which a policy that looks ahead has asked its model, over all steps.")
    simulator_steps = _sum("simulator_steps", "Number of steps in copies of the game, over all steps.")
    seconds = _sum("seconds", "Seconds of the decisions, over all steps.")
    cost = _sum("cost", "Price in US dollars, over all steps.")

    def to_json(self) -> dict[str, Any]:
        """Return the episode as plain JSON data. The key comes first and the error last, where a store reads them quickly."""
        data: dict[str, Any] = {name: getattr(self, name) for name in ("key", "environment", "policy", "seed")}
        before: Mapping[str, Any] = {}
        prompt: tuple[Message, ...] = ()
        earlier_tokens: tuple[int, ...] = ()
        rows = []
        for step in self.steps:
            row = _without_defaults(step)
            decision = _without_defaults(step.decision)
            row |= json_data.difference("observation", before, step.observation)
            messages = decision.pop("messages", ())
            shared = json_data.common(prompt, messages)
            if messages:
                decision["messages"] = [shared, *messages[shared:]]
            if (tokens := decision.pop("tokens", None)) is not None:
                shared_tokens = json_data.common(earlier_tokens, tokens.prompt)
                decision["tokens"] = [shared_tokens, tokens.prompt[shared_tokens:], tokens.said, tokens.log_probs]
                decision["tokens"] += [tokens.written] if tokens.written else []
                earlier_tokens = tokens.prompt + tokens.said
            row["decision"] = decision
            rows.append(row)
            before, prompt = step.observation, tuple(messages)
        data |= {"steps": rows, **json_data.difference("last_observation", before, self.last_observation), "level": self.level}
        return data | {"traceback": self.traceback, "error": self.error}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Episode:
        """Return the episode of data that `to_json` returned.

        Raises:
            KeyError, TypeError, ValueError: If the data is not an episode.
        """
        json_data.check_json("record", data)
        data = dict(data)
        observation: dict[str, Any] = {}
        prompt: tuple[Message, ...] = ()
        read: tuple[int, ...] = ()
        steps = []
        for row in json_data.checked_list("steps", data["steps"]):
            row = dict(row)
            observation = json_data.restored("observation", observation, row)
            decision = dict(row["decision"])
            if "messages" in decision:
                shared, *new = json_data.checked_list("messages", decision["messages"])
                prompt = decision["messages"] = (*json_data.begun(prompt, shared), *map(json_data.checked_message, new))
            else:
                prompt = ()
            if "plan" in decision:
                decision["plan"] = tuple(json_data.checked_list("plan", decision["plan"]))
            if "tokens" in decision:
                shared, rest, *generated = json_data.checked_list("tokens", decision["tokens"])
                tokens = Tokens((*json_data.begun(read, shared), *rest), *map(tuple, generated))
                decision["tokens"] = json_data.checked_tokens(tokens)
                read = tokens.prompt + tokens.said
            row |= {"observation": observation, "decision": json_data.checked_decision(Decision(**decision))}
            steps.append(json_data.checked(Step(**row)))
        last = json_data.restored("last_observation", observation, data)
        episode = json_data.checked(cls(**{**data, "steps": tuple(steps), "last_observation": last}))
        json_data.check_environment(episode.environment)
        return episode


def _without_defaults(record: Step | Decision) -> dict[str, Any]:
    return {f.name: value for f in dataclasses.fields(record) if (value := getattr(record, f.name)) != f.default}


def player_within(policy: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration of the policy that plays within policies that mix actions or look ahead."""
    while isinstance(policy.get("player"), Mapping):
        policy = policy["player"]
    return policy
