"""Training data: episodes as chats in the standard ``messages`` form, in Hugging Face datasets on disk or on the hub.

A row is one growing conversation: of an append-only strategy (``chat`` with the whole history) a whole episode, of any other
strategy one step. Beside its messages stand the labels: what is to be learnt in place of each of the assistant's messages, empty
where nothing is. A label can differ from the message, as when a player erred on purpose, or the learner played: then the expert's
answer is learnt, and the conversation goes on as it was played.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gym_text import TextSpec
from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text.wrappers.exchange_names import Names
from gym_text_policies.prompts import Prompt
from gym_text_policies.records import Episode, Message, Step

LABELS = ("expert", "own")
Labels = Literal["expert", "own"]


@dataclass(frozen=True)
class Asked:
    """How a model is asked, when it is trained and when it plays."""

    strategy: str = "chat"
    """Name or path of the template."""
    history: int | Literal["all"] = "all"
    """Steps before the present one that are shown."""
    with_reward: bool = False
    """Whether the prompt says what is rewarded."""

    def __post_init__(self) -> None:
        if self.history != "all":
            check_int("history", self.history, 0, 1_000_000)

    def prompt(self) -> Prompt:
        """Return the renderer.

        Raises:
            UsageError: If the strategy shows examples, which training does not know.
        """
        prompt = Prompt(self.strategy, with_reward=self.with_reward)
        if prompt.uses_examples:
            raise UsageError(f"strategy {self.strategy!r}: expected one without examples, as in 'chat' or 'zero_shot'.")
        return prompt

    def record(self) -> dict[str, Any]:
        """Return what the record of an adapter that has learnt so says of it; ``template`` is a hash of the template's text."""
        return {"asked": {"mode": "choose", **dataclasses.asdict(self)}, "template": str(self.prompt().config["template"])}


@dataclass(frozen=True)
class Row:
    """One conversation to learn from."""

    messages: tuple[Message, ...]
    labels: tuple[str, ...]
    """For each message what is to be learnt in its place; empty where nothing is."""
    environment: str
    """The environment it is of, as JSON."""
    episode: str
    """Key of the episode."""
    seed: int
    episode_return: float
    success: bool
    strategy: str
    """Template and history of the prompts; `template` is a hash of the template's text."""
    history: str
    template: str
    with_reward: bool = False
    """Whether the prompt says what is rewarded."""

    @property
    def decisions(self) -> int:
        """Number of answers to learn."""
        return sum(map(bool, self.labels))

    def examples(self) -> Iterator[tuple[tuple[Message, ...], str]]:
        """Yield each prompt and the answer to learn."""
        for place, label in enumerate(self.labels):
            if label:
                yield self.messages[:place], label


def rows_of(episode: Episode, spec: TextSpec, asked: Asked, labels: Labels, prompt: Prompt | None = None) -> list[Row]:
    """Return an episode as rows: one, if each prompt goes on from the one before, else one for each step.

    Args:
        episode: Any policy's.
        spec: Of its environment.
        asked: How the model is asked that will learn from it.
        labels: Whose answers are learnt, the expert's in each state where it is known, or the player's own.
        prompt: The renderer, if there is one already.
    """
    check_choice("labels", labels, LABELS)
    prompt = prompt or asked.prompt()
    origin: dict[str, Any] = {
        "environment": json.dumps(dict(episode.environment), sort_keys=True),
        "episode": episode.key,
        "seed": episode.seed,
        "episode_return": episode.total_reward,
        "success": episode.outcome == "won",
        "strategy": asked.strategy,
        "history": str(asked.history),
        "template": str(prompt.config["template"]),
        "with_reward": asked.with_reward,
    }
    rows: list[Row] = []
    messages: list[Message] = []
    learnt: list[str] = []
    for step, asking in zip(episode.steps, prompts_of(episode, spec, asked, prompt), strict=False):  # none follows the last step
        if list(asking[: len(messages)]) != messages:
            rows.append(Row(tuple(messages), tuple(learnt), **origin))
            messages, learnt = [], []
        learnt += [""] * (len(asking) - len(learnt))
        answer = _label(step, labels)
        messages = [*asking, {"role": "assistant", "content": step.decision.action}]
        learnt.append(answer)
    rows.append(Row(tuple(messages), tuple(learnt), **origin))
    return [_shown(row) for row in rows if row.decisions]


def exchange_names(rows: Sequence[Row], names: Sequence[str], seed: int) -> list[Row]:
    """Return rows in each of which some names stand for one another, drawn at random: all else that it tells stays as it was.

    So what a thing's name has always meant in the data (a chicken leg is grilled) cannot be learnt in place of what the text says.

    Args:
        rows: What is learnt.
        names: Of things; see `gym_text.wrappers.exchange_names.Names`.
        seed: Of what is drawn.

    Raises:
        UsageError: If no other thing has as many names, one stands twice, or one is nowhere in the rows.
    """
    things = Names(names)
    seen = {name for row in rows for message in row.messages for name in things.found(message["content"])}
    if things.single - seen:
        raise UsageError(f"interchangeable: expected names that stand in the data; these do not: {sorted(things.single - seen)}.")
    rng = random.Random(seed)
    exchanged = []
    for row in rows:
        rename = functools.partial(things.rename, new=things.draw(rng))
        messages = tuple({**message, "content": rename(message["content"])} for message in row.messages)
        exchanged.append(dataclasses.replace(row, messages=messages, labels=tuple(map(rename, row.labels))))
    return exchanged


def _shown(row: Row) -> Row:
    """Return a row whose last message, which no later prompt shows, is its label."""
    last = {"role": "assistant", "content": row.labels[-1] or row.messages[-1]["content"]}
    return dataclasses.replace(row, messages=(*row.messages[:-1], last))


def _label(step: Step, labels: Labels) -> str:
    if labels == "expert":
        return step.gold_action or ""
    return (step.decision.completion or step.decision.action) if step.decision.valid else ""


def prompts_of(episode: Episode, spec: TextSpec, asked: Asked, prompt: Prompt) -> Iterator[tuple[Message, ...]]:
    """Yield what a model that played this episode would have been asked at each step, and after the last."""
    past: list[tuple[str, str]] = []
    for step in (*episode.steps, None):
        shown = past if asked.history == "all" else past[len(past) - asked.history :] if asked.history else []
        observation = step.observation if step else episode.last_observation
        yield prompt.render(spec, {**observation, "history": tuple(shown)})
        if step:
            past.append((str(step.observation["text"]), step.decision.action))


def write_rows(rows: Sequence[Row], folder: str | Path) -> None:
    """Save rows as a Hugging Face dataset.

    Raises:
        UsageError: If there is none, or the folder is there already.
    """
    datasets = import_extra("datasets", "train")
    if not rows:
        raise UsageError(f"{folder}: expected rows to learn from; got none. Play more episodes, or lower the threshold.")
    if Path(folder).exists():
        raise UsageError(f"{folder}: expected a new folder; it is there already. Name another one, or remove it.")
    partial = Path(folder).with_name(Path(folder).name + ".partial")
    with _no_progress(datasets):
        datasets.Dataset.from_list([dataclasses.asdict(row) for row in rows]).save_to_disk(partial)
    partial.rename(folder)


def read_rows(source: str | Path, asked: Asked | None = None) -> list[Row]:
    """Read rows from a folder, or from the hub as ``hf:OWNER/NAME``.

    Args:
        source: Where they are.
        asked: How the model that learns from them is asked; None: however they say.

    Raises:
        UsageError: If there are none, or they were made with another prompt.
    """
    datasets = import_extra("datasets", "train")
    try:
        with _no_progress(datasets):
            if str(source).startswith("hf:"):
                data = datasets.load_dataset(str(source).removeprefix("hf:"), split="train")
            else:
                data = datasets.load_from_disk(str(source))
        rows = [_row(record) for record in data]
    except (FileNotFoundError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{source}: expected a dataset that gym-text collect has made; {error}") from error
    if not rows:
        raise UsageError(f"{source}: expected rows to learn from; got none.")
    check_prompts(rows, asked, str(source))
    return rows


def check_prompts(rows: Iterable[Row], asked: Asked | None, source: str) -> None:
    """Raise `UsageError` unless all rows have one prompt version, and it is the one that is asked for."""
    found = {(row.strategy, row.history, row.with_reward, row.template) for row in rows}
    if len(found) > 1:
        raise UsageError(f"{source}: expected rows of one prompt; got {sorted(found)}. Collect them with one strategy and history.")
    if asked is not None:
        expected = (asked.strategy, str(asked.history), asked.with_reward, str(asked.prompt().config["template"]))
        if {expected} != found:
            (got,) = found
            raise UsageError(
                f"{source}: expected rows with the prompt (strategy, history, reward, version) {expected}; got {got}. "
                "The template has changed or another one is asked for: collect again, the stored episodes are used."
            )


def push_rows(folder: str | Path, repository: str) -> None:
    """Upload a dataset to the hub, private unless the repository is there already."""
    datasets = import_extra("datasets", "train")
    datasets.load_from_disk(str(folder)).push_to_hub(repository, private=True)


def _row(record: Mapping[str, Any]) -> Row:
    fields = {field.name: record[field.name] for field in dataclasses.fields(Row) if field.name != "with_reward"}
    fields["with_reward"] = record.get("with_reward", False)  # which older rows do not say
    messages = tuple({"role": message["role"], "content": message["content"]} for message in fields["messages"])
    return Row(**{**fields, "messages": messages, "labels": tuple(fields["labels"])})


def _no_progress(datasets: Any) -> Any:
    """Return a block in which datasets draws no bars."""
    import contextlib

    @contextlib.contextmanager
    def quiet() -> Iterator[None]:
        was_on = datasets.is_progress_bar_enabled()
        datasets.disable_progress_bars()
        try:
            yield
        finally:
            if was_on:
                datasets.enable_progress_bars()

    return quiet()
