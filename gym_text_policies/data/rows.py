"""Training data: episodes as chats in the standard ``messages`` form.

A row is one conversation. An append-only strategy (``chat`` with the whole history) gives one row for each episode, any other
strategy one row for each step. Each message has a label: the answer that the model learns in place of the message, or an empty
text. With the expert's labels a label may differ from its message: the message is the action that the player took, the label the
expert's action. The conversation goes on after the player's action.

A thought may stand before a label. The model learns to write it between the prompt and the answer, as its chat template has it. No
later message contains the thought.

In mode ``tool`` an answer is a call: its label has the arguments, as JSON, and the row has the tool's description. The model's
chat template writes both when the model learns and when it plays, so the same rows teach models with different templates.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from gym_text import TextSpec
from gym_text.errors import UsageError, check_choice
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.data.calls import row_calls
from gym_text_policies.data.targets import targets_of
from gym_text_policies.policies.config import TRAINED, Depth, PolicyConfig, settings_of
from gym_text_policies.prompts import LABELS as OPTION_LABELS
from gym_text_policies.prompts import Prompt
from gym_text_policies.prompts.tools import as_calls, call_of, tool_function
from gym_text_policies.records import Episode, Message, Step

LABELS = ("expert", "own")
Labels = Literal["expert", "own"]


def trained_as(given: PolicyConfig, adapter: str = "") -> PolicyConfig:
    """Return the prompt settings of training: those that the user gives, else those of the adapter's training, else `TRAINED`.

    In mode ``tool`` the strategy and the history are, by default, those of play in this mode.

    Args:
        given: The user's settings.
        adapter: Name or folder of the adapter that training starts from, or that plays; any other model adds no settings.
    """
    known = given.with_defaults(settings_of(adapter) if adapter else {})
    return known.with_defaults(known.usual).with_defaults(TRAINED)


def training_prompt(policy: PolicyConfig) -> Prompt:
    """Return the renderer of a policy's prompts.

    Raises:
        UsageError: If the strategy shows examples, which training data has none of, or asks for other answers than the mode.
    """
    prompt = Prompt(policy.strategy or "", with_reward=bool(policy.with_reward))
    prompt.check_answers(calls=policy.mode == "tool")
    if prompt.uses_examples:
        raise UsageError(f"strategy {policy.strategy!r}: expected one without examples, as in 'chat' or 'zero_shot'.")
    return prompt


def learner_of(policy: PolicyConfig, tokenizer: Any, tools: Iterable[str] = ()) -> PolicyConfig:
    """Return how a model is asked in training. One that would think, and has no thoughts to learn from, is asked not to think.

    Args:
        policy: How the model is prompted; `think` is True if there are thoughts to learn from.
        tokenizer: The model's tokenizer.
        tools: The tools of the rows; see `Row.tool`.

    Raises:
        UsageError: If there are thoughts or calls, and the model's chat template has none; or if an answer cannot stand without a
            thought.
    """
    for tool in filter(None, sorted(set(tools))):
        try:
            row_calls(tokenizer, tool, think=bool(policy.think))
        except UsageError as error:
            raise UsageError(f"data: expected a model that can call, as the answers of these rows are calls. {error}") from error
    known = format_of(tokenizer)
    if policy.think:
        try:
            known.answer_start(True)
        except UsageError as error:
            repair = "Give a template that has some (chat_template), or collect again from a player with think=False."
            raise UsageError(f"data: expected rows without thoughts, as this model's chat template has none. {repair}") from error
        return policy
    known.answer_start(False)
    return dataclasses.replace(policy, think=False if known.answer_start().thinks else None)


def prompt_record(policy: PolicyConfig) -> dict[str, Any]:
    """Return what an adapter's record says of its prompts; ``template`` is a hash of the template's text."""
    names = ("mode", "strategy", "history", "with_reward", *(("think",) if policy.think is not None else ()))
    asked = {name: getattr(policy, name) for name in names}
    return {"asked": asked, "template": str(training_prompt(policy).config["template"])}


class Example(NamedTuple):
    """A prompt with the answer to learn."""

    messages: tuple[Message, ...]
    answer: str
    thought: str = ""
    """The thought to learn before the answer; empty if there is none."""
    tool: str = ""
    """The tool whose call the answer is; see `Row.tool`."""


@dataclass(frozen=True)
class Row:
    """One conversation to learn from."""

    messages: tuple[Message, ...]
    labels: tuple[str, ...]
    """For each message the answer to learn in its place, or an empty text."""
    environment: str
    """The environment, as JSON."""
    episode: str
    """Key of the stored episode."""
    seed: int
    episode_return: float
    success: bool
    strategy: str
    """The prompts' template: its name or path."""
    history: str
    """Earlier steps that the prompts show, a number or ``all``, as text."""
    template: str
    """Hash of the template's text."""
    with_reward: bool = False
    """Whether the prompt says which events give a reward."""
    thoughts: tuple[str, ...] = ()
    """For each message the thought to learn before its label, or an empty text. Empty if there are no thoughts."""
    tool: str = ""
    """The tool whose calls the labels are, as JSON: see `Request.tool`. Empty if the labels are words."""
    own_labels: bool = False
    """Whether the labels are the player's own answers, maybe in other words than the names of actions, which the messages have."""
    options: tuple[tuple[str, ...], ...] = ()
    """For each message the names of the actions that its label is one of. Empty if the game lists no actions."""
    shares: tuple[tuple[float, ...], ...] = ()
    """For each message the probabilities of the options that a search has found, or equal ones of the best actions by the expert's
    plans. Empty if neither is known."""

    @property
    def decisions(self) -> int:
        """Number of answers to learn."""
        return sum(map(bool, self.labels))

    @property
    def policy(self) -> PolicyConfig:
        """How a model that learns from this row is asked: for calls, in words if the strategy asks for thoughts, or to choose."""
        history: Depth = "all" if self.history == "all" else int(self.history)
        policy = dataclasses.replace(TRAINED, strategy=self.strategy, history=history, with_reward=self.with_reward)
        if self.tool:
            return dataclasses.replace(policy, mode="tool")
        return dataclasses.replace(policy, mode="text") if training_prompt(policy).thinks else policy

    def examples(self) -> Iterator[Example]:
        """Yield each prompt with the answer to learn, and the thought before it."""
        thoughts = self.thoughts or ("",) * len(self.labels)
        for number, (label, thought) in enumerate(zip(self.labels, thoughts, strict=True)):
            if label:
                yield Example(self.messages[:number], label, thought, self.tool)


def rows_of(
    episode: Episode,
    spec: TextSpec,
    policy: PolicyConfig,
    labels: Labels,
    prompt: Prompt | None = None,
    *,
    best: Mapping[int, Sequence[str]] | None = None,
) -> list[Row]:
    """Return an episode as rows: one if each prompt extends the one before it, else one for each step.

    Args:
        episode: Played by any policy.
        spec: The specification of the episode's environment.
        policy: How the model that will learn from the rows is prompted.
        labels: Whose answers are learnt: ``expert``, in each state where the expert's answer is known, or ``own``, the player's.
        prompt: A renderer of that policy's prompts; None: a new renderer.
        best: For the number of a step the actions that are equally good by the expert's plans; None if that is not known.
    """
    check_choice("labels", labels, LABELS)
    prompt, calls = prompt or training_prompt(policy), policy.mode == "tool"
    origin = {**_origin(episode, spec, policy, prompt), "own_labels": labels == "own"}
    rows: list[Row] = []
    messages: list[Message] = []
    learnt: list[_Learnt] = []
    # `prompts_of` also yields a prompt after the last step, which `zip` leaves out.
    for number, (step, prompted) in enumerate(zip(episode.steps, prompts_of(episode, spec, policy, prompt), strict=False)):
        if list(prompted[: len(messages)]) != messages:
            rows.append(_row(messages, learnt, origin))
            messages, learnt = [], []
        learnt += [_Learnt()] * (len(prompted) - len(learnt))
        label, before = (step.gold_action or "", "") if labels == "expert" else _own_label(step, policy, prompt)
        options = spec.names(dict(step.observation)) if label else ()
        if prompt.by_label:
            label = OPTION_LABELS[options.index(label)] if label in options else ""
        equal = (best or {}).get(number, ())
        found = targets_of(step.decision) if labels == "own" else {name: 1 / len(equal) for name in equal}
        shares = tuple(found.get(name, 0.0) for name in options) if found else ()
        learnt.append(_Learnt(call_of(label) if calls and label else label, before, options, shares))
        action = step.decision.action
        messages = [*prompted, answer_message(call_of(action) if calls else action, calls=calls)]
    rows.append(_row(messages, learnt, origin))
    return [_ends_with_its_label(row) for row in rows if row.decisions]


def answer_message(answer: str, *, calls: bool) -> Message:
    """Return an answer as a message: words, or the arguments of a call."""
    said: Message = {"role": "assistant", "content": answer}
    return as_calls([said])[0] if calls else said


def _origin(episode: Episode, spec: TextSpec, policy: PolicyConfig, prompt: Prompt) -> dict[str, Any]:
    """Return the fields that all rows of an episode share."""
    return {
        "environment": json.dumps(dict(episode.environment), sort_keys=True),
        "episode": episode.key,
        "seed": episode.seed,
        "episode_return": episode.total_reward,
        "success": episode.outcome == "won",
        "strategy": policy.strategy,
        "history": str(policy.history),
        "template": str(prompt.config["template"]),
        "with_reward": bool(policy.with_reward),
        "tool": json.dumps(tool_function(spec), ensure_ascii=False) if policy.mode == "tool" else "",
    }


class _Learnt(NamedTuple):
    """What is learnt in place of a message: see the fields of `Row`."""

    label: str = ""
    thought: str = ""
    options: tuple[str, ...] = ()
    shares: tuple[float, ...] = ()


def _row(messages: Sequence[Message], learnt: Sequence[_Learnt], origin: Mapping[str, Any]) -> Row:
    labels, *others = zip(*learnt, strict=True) if learnt else ((), (), (), ())
    given: dict[str, Any] = {name: each for name, each in zip(("thoughts", "options", "shares"), others, strict=True) if any(each)}
    return Row(tuple(messages), labels, **given, **origin)


def _ends_with_its_label(row: Row) -> Row:
    """Return a row whose last message is replaced by its label. No later prompt contains the action that was played."""
    last = answer_message(row.labels[-1], calls=bool(row.tool)) if row.labels[-1] else row.messages[-1]
    return dataclasses.replace(row, messages=(*row.messages[:-1], last))


def _own_label(step: Step, policy: PolicyConfig, prompt: Prompt) -> tuple[str, str]:
    """Return the player's answer, and its thought before it; two empty texts if the answer is unusable or the thought was cut."""
    decision = step.decision
    if not decision.valid or decision.thought_cut:
        return "", ""
    thought = "" if prompt.thinks else decision.reasoning or ""  # a strategy that thinks has its reasoning in the answer
    anew = policy.mode == "tool" or prompt.by_label  # a call may name the action otherwise
    said = None if anew else decision.completion
    return said or decision.action, thought


def prompts_of(episode: Episode, spec: TextSpec, policy: PolicyConfig, prompt: Prompt) -> Iterator[tuple[Message, ...]]:
    """Yield the prompt of each step of an episode, and the prompt after its last step."""
    for number, step in enumerate((*episode.steps, None)):
        shown = episode.steps[0 if policy.history == "all" else max(0, number - (policy.history or 0)) : number]
        history = tuple((str(past.observation["text"]), past.decision.action) for past in shown)
        obs = {**(step.observation if step else episode.last_observation), "history": history}
        earlier = {"earlier": tuple(past.observation for past in shown)}
        yield prompt.render(spec, obs | earlier, calls=policy.mode == "tool")


def policy_of(rows: Sequence[Row]) -> PolicyConfig:
    """Return how the model that learns from rows is prompted: with the longest history of the rows.

    The rows may show different numbers of earlier steps: one model can learn from rows of several games.

    Raises:
        UsageError: If there are no rows, their prompts differ, or the template's file has changed since the rows were made.
    """
    if not rows:
        raise UsageError("data: expected rows to learn from; got none.")
    prompts = {(row.strategy, row.with_reward, row.template, "calls" if row.tool else "words") for row in rows}
    if len(prompts) > 1:
        raise UsageError(f"data: expected rows of one prompt; got {sorted(prompts)}. Collect them with one strategy and mode.")
    row = max(rows, key=lambda row: math.inf if row.history == "all" else int(row.history))
    template = str(training_prompt(row.policy).config["template"])
    if row.template != template:
        raise UsageError(
            f"data: expected rows with version {template} of the prompt {row.strategy!r}; got {row.template}. The template has "
            "changed. Collect again: that uses the stored episodes."
        )
    return dataclasses.replace(row.policy, think=True if any(row.thoughts for row in rows) else None)
