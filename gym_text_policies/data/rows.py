"""Training data: episodes as chats in the standard ``messages`` form, in Hugging Face datasets on disk or on the hub.

A row is one growing conversation. An append-only strategy (``chat`` with the whole history) gives one row for each episode, any
other strategy one row for each step. Each message has a label: the answer to learn in its place, or nothing. A label can differ
from the message, because the player may err on purpose, or be the learner itself. The expert's answer is learnt then, and the
conversation continues as it was played.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gym_text import TextSpec
from gym_text.errors import UsageError, check_choice, import_extra
from gym_text.wrappers.exchange_names import Names
from gym_text_policies.data.row_checks import check_conversation, check_origin
from gym_text_policies.files import check_folder
from gym_text_policies.folders import replace_folder
from gym_text_policies.json_data import checked
from gym_text_policies.policies.config import TRAINED, Depth, PolicyConfig, settings_of
from gym_text_policies.prompts import Prompt
from gym_text_policies.records import Episode, Message, Step
from gym_text_policies.store import writing

LABELS = ("expert", "own")
Labels = Literal["expert", "own"]


def trained_as(given: PolicyConfig, adapter: str = "") -> PolicyConfig:
    """Return how a model is prompted in training: what the user gives, else what the adapter was trained with, else `TRAINED`.

    Args:
        given: The user's settings.
        adapter: Name or folder of the adapter that training starts from, or that plays; any other model adds no settings.
    """
    return given.with_defaults(settings_of(adapter) if adapter else {}).with_defaults(TRAINED)


def training_prompt(policy: PolicyConfig) -> Prompt:
    """Return the renderer of a policy's prompts.

    Raises:
        UsageError: If the strategy shows examples: training data has none.
    """
    prompt = Prompt(policy.strategy or "", with_reward=bool(policy.with_reward))
    if prompt.uses_examples:
        raise UsageError(f"strategy {policy.strategy!r}: expected one without examples, as in 'chat' or 'zero_shot'.")
    return prompt


def prompt_record(policy: PolicyConfig) -> dict[str, Any]:
    """Return what an adapter's record says of its prompts; ``template`` is a hash of the template's text."""
    names = ("mode", "strategy", "history", "with_reward")
    asked = {name: getattr(policy, name) for name in names}
    return {"asked": asked, "template": str(training_prompt(policy).config["template"])}


@dataclass(frozen=True)
class Row:
    """One conversation to learn from."""

    messages: tuple[Message, ...]
    labels: tuple[str, ...]
    """For each message the answer to learn in its place; empty: none."""
    environment: str
    """The environment, as JSON."""
    episode: str
    """Key of the episode."""
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
    """Whether the prompt says what is rewarded."""

    @property
    def decisions(self) -> int:
        """Number of answers to learn."""
        return sum(map(bool, self.labels))

    @property
    def policy(self) -> PolicyConfig:
        """How a model that learns from it is prompted."""
        history: Depth = "all" if self.history == "all" else int(self.history)
        return dataclasses.replace(TRAINED, strategy=self.strategy, history=history, with_reward=self.with_reward)

    def examples(self) -> Iterator[tuple[tuple[Message, ...], str]]:
        """Yield each prompt with the answer to learn."""
        for place, label in enumerate(self.labels):
            if label:
                yield self.messages[:place], label


def rows_of(episode: Episode, spec: TextSpec, policy: PolicyConfig, labels: Labels, prompt: Prompt | None = None) -> list[Row]:
    """Return an episode as rows: one if each prompt extends the one before it, else one for each step.

    Args:
        episode: Played by any policy.
        spec: Of its environment.
        policy: How the model that will learn from it is prompted.
        labels: Whose answers are learnt: the expert's, in each state where it is known, or the player's own.
        prompt: The renderer, if it exists already.
    """
    check_choice("labels", labels, LABELS)
    prompt = prompt or training_prompt(policy)
    origin: dict[str, Any] = {
        "environment": json.dumps(dict(episode.environment), sort_keys=True),
        "episode": episode.key,
        "seed": episode.seed,
        "episode_return": episode.total_reward,
        "success": episode.outcome == "won",
        "strategy": policy.strategy,
        "history": str(policy.history),
        "template": str(prompt.config["template"]),
        "with_reward": bool(policy.with_reward),
    }
    rows: list[Row] = []
    messages: list[Message] = []
    answers: list[str] = []
    # No step follows the prompt after the last one.
    for step, prompted in zip(episode.steps, prompts_of(episode, spec, policy, prompt), strict=False):
        if list(prompted[: len(messages)]) != messages:
            rows.append(Row(tuple(messages), tuple(answers), **origin))
            messages, answers = [], []
        answers += [""] * (len(prompted) - len(answers))
        answers.append(_label(step, labels))
        messages = [*prompted, {"role": "assistant", "content": step.decision.action}]
    rows.append(Row(tuple(messages), tuple(answers), **origin))
    return [_ends_with_its_label(row) for row in rows if row.decisions]


def exchange_names(rows: Sequence[Row], names: Sequence[str], seed: int) -> list[Row]:
    """Return rows in which some names stand for one another, drawn anew for each row; everything else stays as it is.

    This keeps a model from learning what a name always means in the data (a chicken leg is grilled) in place of reading the text.

    Args:
        rows: What to learn from.
        names: Names of things; see `gym_text.wrappers.exchange_names.Names`.
        seed: Seed of the draws.

    Raises:
        UsageError: If no other thing has as many names, a name is given twice, or a name is nowhere in the rows.
    """
    things = Names(names)
    found = {name for row in rows for message in row.messages for name in things.found(message["content"])}
    if things.single - found:
        raise UsageError(f"interchangeable: expected names that stand in the data; these do not: {sorted(things.single - found)}.")
    rng = random.Random(seed)
    exchanged = []
    for row in rows:
        rename = functools.partial(things.rename, new=things.draw(rng))
        messages = tuple({**message, "content": rename(message["content"])} for message in row.messages)
        exchanged.append(dataclasses.replace(row, messages=messages, labels=tuple(map(rename, row.labels))))
    return exchanged


def _ends_with_its_label(row: Row) -> Row:
    """Return a row whose last message is its label: no later prompt shows the action that was played."""
    last = {"role": "assistant", "content": row.labels[-1] or row.messages[-1]["content"]}
    return dataclasses.replace(row, messages=(*row.messages[:-1], last))


def _label(step: Step, labels: Labels) -> str:
    if labels == "expert":
        return step.gold_action or ""
    return (step.decision.completion or step.decision.action) if step.decision.valid else ""


def prompts_of(episode: Episode, spec: TextSpec, policy: PolicyConfig, prompt: Prompt) -> Iterator[tuple[Message, ...]]:
    """Yield the prompt of each step of an episode, and the prompt after its last step."""
    past: list[tuple[str, str]] = []
    for step in (*episode.steps, None):
        shown = past if policy.history == "all" else past[len(past) - policy.history :] if policy.history else []
        observation = step.observation if step else episode.last_observation
        yield prompt.render(spec, {**observation, "history": tuple(shown)})
        if step:
            past.append((str(step.observation["text"]), step.decision.action))


def write_rows(rows: Sequence[Row], folder: str | Path, *, replace: bool = False) -> None:
    """Save rows as a Hugging Face dataset; the folder is written whole or not at all.

    Args:
        rows: The rows.
        folder: The new folder.
        replace: Whether it may be there already; what is in it stays until the new one is whole.

    Raises:
        UsageError: If there are no rows, or the folder exists, and `replace` does not allow that.
        StoreError: If it cannot be written.
    """
    datasets = import_extra("datasets", "train")
    folder = Path(folder)
    if not rows:
        raise UsageError(f"{folder}: expected rows to learn from; got none. Play more episodes, or lower the threshold.")
    if folder.exists() and not replace:
        raise UsageError(f"{folder}: expected a new folder; it is there already. Name another one, or remove it.")

    def save(target: Path) -> None:
        with _no_progress_bars(datasets), writing(folder):
            datasets.Dataset.from_list([dataclasses.asdict(row) for row in rows]).save_to_disk(target)

    replace_folder(folder, save)


def read_rows(source: str | Path, policy: PolicyConfig | None = None) -> list[Row]:
    """Read rows from a folder, or from the hub as ``hf:OWNER/NAME``.

    Args:
        source: The folder or repository.
        policy: How the model that learns from them is prompted; None: any prompt will do.

    Raises:
        UsageError: If there are no rows, or they were made with another prompt.
    """
    datasets = import_extra("datasets", "train")
    try:
        with _no_progress_bars(datasets):
            if str(source).startswith("hf:"):
                data = datasets.load_dataset(str(source).removeprefix("hf:"), split="train")
            else:
                check_folder(Path(source))
                data = datasets.load_from_disk(str(source))
        rows = [_row(number, record) for number, record in enumerate(data)]
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:  # of datasets and pyarrow as well
        hint = f" Its rows are in {source}/rows." if (Path(source) / "rows").is_dir() else ""
        raise UsageError(f"{source}: expected a dataset that gym-text collect has made; {error}.{hint}") from error
    if not rows:
        raise UsageError(f"{source}: expected rows to learn from; got none.")
    check_prompts(rows, policy, str(source))
    return rows


def check_prompts(rows: Iterable[Row], policy: PolicyConfig | None, source: str) -> None:
    """Raise `UsageError` unless all rows have the same prompt, and it is the policy's."""
    found = {(row.strategy, row.history, row.with_reward, row.template) for row in rows}
    if len(found) > 1:
        raise UsageError(f"{source}: expected rows of one prompt; got {sorted(found)}. Collect them with one strategy and history.")
    if policy is not None:
        template = str(training_prompt(policy).config["template"])
        expected = (policy.strategy, str(policy.history), policy.with_reward, template)
        if {expected} != found:
            (got,) = found
            raise UsageError(
                f"{source}: expected rows with the prompt (strategy, history, reward, version) {expected}; got {got}. "
                "The template has changed, or another one is asked for. Collect again: the stored episodes are used."
            )


def policy_of(rows: Sequence[Row]) -> PolicyConfig:
    """Return how the model that learns from rows is prompted.

    Raises:
        UsageError: If there are no rows, their prompts differ, or the template has changed since.
    """
    if not rows:
        raise UsageError("data: expected rows to learn from; got none.")
    policy = rows[0].policy
    check_prompts(rows, policy, "data")
    return policy


def push_rows(folder: str | Path, repository: str) -> None:
    """Upload a dataset to the hub; a new repository is private."""
    datasets = import_extra("datasets", "train")
    datasets.load_from_disk(str(folder)).push_to_hub(repository, private=True)


def _row(number: int, record: Mapping[str, Any]) -> Row:
    """Return a record of a dataset as a row, each field checked: whoever made it, training ends in no foreign error."""
    fields = {field.name: record[field.name] for field in dataclasses.fields(Row)}
    try:
        check_conversation(fields["messages"], fields["labels"])
        check_origin(fields["environment"], fields["history"])
        messages = tuple({"role": message["role"], "content": message["content"]} for message in fields["messages"])
        return checked(Row(**{**fields, "messages": messages, "labels": tuple(fields["labels"])}))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"row {number}: {error}") from None


@contextlib.contextmanager
def _no_progress_bars(datasets: Any) -> Iterator[None]:
    """Let datasets draw no progress bars while the block runs."""
    was_on = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if was_on:
            datasets.enable_progress_bars()
