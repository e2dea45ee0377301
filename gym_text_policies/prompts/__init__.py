"""From an observation to the messages of a prompt, by template files."""

from __future__ import annotations

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import FileSystemLoader, StrictUndefined, TemplateError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gym_text import TextSpec, UsageError
from gym_text.errors import PolicyError, check_choice
from gym_text_policies.files.safe_files import check_regular
from gym_text_policies.prompts.tools import as_calls, call_of, called_action
from gym_text_policies.records import Message

_FOLDER = Path(__file__).parent
STRATEGIES = tuple(sorted(path.stem for path in _FOLDER.glob("[!_]*.jinja")))
TOOL_STRATEGY = "tool"
"""The strategy whose messages TRL makes, too, of an environment of `gym_text_policies.bridges.trl`."""
TOOL_STRATEGIES = (TOOL_STRATEGY, "tool_short")
"""Strategies whose prompts ask for calls of the tool ``act``."""
LABELS = string.ascii_uppercase + string.ascii_lowercase + string.digits
"""What stands for the first, the second … action in prompts that list them by labels."""
_OF_ARRAYS = frozenset(("T", "item", "max", "mean", "min", "ndim", "round", "shape", "size", "sum", "tolist"))
"""What a template may use of NumPy's arrays, whose other methods write files and change numbers."""
_ERRORS = (TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What a template can raise: it is a program."""


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox for templates by other people: they read their variables, and change nothing.

    Like transformers' sandbox of chat templates, it limits neither loops nor texts: a hostile template can make a process hang, but
    do no more.
    """

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, np.ndarray | np.generic) and attr not in _OF_ARRAYS:
            return False
        return super().is_safe_attribute(obj, attr, value)


_LOADER = FileSystemLoader(_FOLDER)
_SANDBOX = _Sandbox(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, loader=_LOADER)


class Prompt:
    """A prompt template: a Jinja file of named blocks, rendered in Jinja's sandbox.

    The blocks ``system`` and ``user`` make the first and the last message. Between them stand the steps that `History` keeps. Each
    is two messages: the block ``past`` (without that block, the step's text), and the action or the model's own words. A block
    ``answer`` holds a JSON object with the fields of an answer and their meanings; the last field is ``action``.

    A template has the variables ``spec`` (the `TextSpec`), ``obs`` (only the fields that `spec` names: no expert's hint can reach a
    prompt), ``names`` (the names of the valid actions), ``labels`` (of the names, in their order: a template that shows them has
    the answer by a label), ``examples`` (see `policies.examples`) and ``with_reward``; the block
    ``past`` also has ``text``; in mode ``tool`` ``before`` has ``obs`` and ``names`` of the step before, and is none at the first.
    A template with the variable ``state``, the situation as JSON, tells the steps that `History` keeps by itself; see `json_state`.
    It can change none of them. A template may include, by name, the files here that begin with an underscore.

    Args:
        strategy: Name of a template that ships, or the path of one of your own (a ``.jinja`` file).
        with_reward: Whether the prompt says what is rewarded.

    Raises:
        UsageError: If there is no such template, it cannot be parsed, or a block is missing.
    """

    def __init__(self, strategy: str, *, with_reward: bool = False) -> None:
        path = Path(strategy)
        if path.suffix != ".jinja":
            check_choice("strategy", strategy, STRATEGIES)
            path = _FOLDER / f"{strategy}.jinja"
        self._with_reward = with_reward
        try:
            sources = _sources(check_regular(path, path.parent).read_text("utf-8"))
            self._template = _SANDBOX.from_string(sources[0])
            trees = [_SANDBOX.parse(source) for source in sources]
            used = set().union(*map(meta.find_undeclared_variables, trees))
        except UsageError:
            raise
        except (OSError, *_ERRORS) as error:
            raise UsageError(f"strategy {strategy!r}: expected a Jinja template; {error}.") from error
        missing = sorted({"system", "user"} - self._template.blocks.keys())
        if missing:
            raise UsageError(f"strategy {strategy!r}: expected the blocks 'system' and 'user'; missing: {', '.join(missing)}.")
        self.uses_examples = "examples" in used
        self.tells_state = "state" in used
        """Whether it tells the whole situation as JSON, and not what the actions mean."""
        asks = any(node.attr == "lists_actions" for tree in trees for node in tree.find_all(nodes.Getattr))
        self.needs_names = "names" in used and not asks
        """Whether it shows the names of the actions, and does not ask ``spec.lists_actions`` whether there are any."""
        self.by_label = "labels" in used
        """Whether the answer is the label of an action, in mode ``choose``."""
        self.config = {"strategy": strategy, "template": hashlib.sha256("".join(sources).encode()).hexdigest()[:16]}
        if with_reward:
            self.config["with_reward"] = True  # type: ignore[assignment]
        self.answer = self._answer()
        self.thinks = len(self.answer) > 1

    def __deepcopy__(self, memo: dict[int, Any]) -> Prompt:
        """Return this prompt, which never changes."""
        return self

    def check_answers(self, *, calls: bool) -> None:
        """Raise `UsageError` if the template asks for other answers than those that are given.

        Args:
            calls: Whether the answers are calls of a tool, as in mode ``tool``, and no words.
        """
        strategy = self.config["strategy"]
        if calls and self.thinks:
            raise UsageError(
                f"strategy: expected one whose answer is an action alone, as the tool of mode 'tool' takes nothing else; got "
                f"{strategy!r}, which also asks for thoughts. For these take mode 'json', or a model that thinks by itself."
            )
        if strategy in TOOL_STRATEGIES and not calls:
            raise UsageError(
                f"strategy: expected one for answers in words, as in 'chat'; got {strategy!r}, which asks for calls of a tool, as "
                "mode 'tool' has them."
            )

    def _answer(self) -> dict[str, str]:
        """Return the fields of an answer and their meanings, in order; the last is ``action``."""
        if "answer" not in self._template.blocks:
            return {"action": "the action that you take"}
        text = self._block("answer", {})
        try:
            fields: dict[str, str] = json.loads(text)
            well = list(fields)[-1] == "action" and all(isinstance(meaning, str) for meaning in fields.values())
        except (ValueError, AttributeError, IndexError, TypeError):
            well = False
        if not well:
            raise UsageError(
                f"strategy {self.config['strategy']!r}: expected in the block 'answer' a JSON object of fields and their meanings, "
                f"the last of them 'action'; got {text!r}."
            )
        return fields

    def schema(self, spec: TextSpec, names: Sequence[str]) -> dict[str, Any]:
        """Return the JSON schema of an answer. Its action is one of `names`, or a number or any text if these are the actions."""
        fields: dict[str, Any] = {name: {"type": "string", "description": meaning} for name, meaning in self.answer.items()}
        if spec.lists_actions:
            fields["action"]["enum"] = list(names)
        if spec.encoding == "box" and spec.size == 1:
            fields["action"] = {"anyOf": [fields["action"], {"type": "number", "minimum": spec.low, "maximum": spec.high}]}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}

    def render(
        self,
        spec: TextSpec,
        obs: Mapping[str, Any],
        *,
        examples: Sequence[Any] = (),
        said: Sequence[str | None] = (),
        thoughts: Sequence[str | None] = (),
        calls: bool = False,
        before: Mapping[str, Any] | None = None,
    ) -> tuple[Message, ...]:
        """Return the messages for one observation.

        Args:
            spec: What the environment tells its players.
            obs: The observation. Its key ``history``, if there is one, holds the steps that `History` keeps.
            examples: Demonstrations, for templates that show them.
            said: The model's own answer at each step so far. An answer that is not None replaces the action's name.
            thoughts: The model's thought at each step so far. A thought that is not None becomes ``reasoning`` of the message.
            calls: Whether earlier actions are calls of a tool, and what followed each of them is the tool's answer. Then `said` has
                arguments of calls, and earlier steps are told by the block ``user``, from the observations that `History` keeps
                with ``whole=True``.
            before: The observation before, where `obs` has no history.

        Raises:
            UsageError: If a field of `spec` is missing in `obs`, or the template uses an unknown variable or something that the
                sandbox forbids.
            PolicyError: If the template shows labels, and there are more actions.
        """
        lacking = sorted(spec.fields.keys() - obs.keys())
        if lacking:
            raise UsageError(f"obs: expected the keys {sorted(spec.fields)}; missing: {lacking}. Use policy.wrap(env).")
        variables = {
            "spec": spec,
            **self._fields(spec, obs),
            "examples": examples,
            "with_reward": self._with_reward,
            "before": None if before is None else self._fields(spec, before),
            "state": json_state(spec, obs, with_reward=self._with_reward) if self.tells_state else None,
        }
        history = () if self.tells_state else tuple(obs.get("history", ()))
        words, reasons = ([*[None] * len(history), *texts][-len(history) :] if history else [] for texts in (said, thoughts))
        whole = obs["earlier"] if calls and history else [None] * len(history)
        messages: list[Message] = [{"role": "system", "content": self._block("system", variables)}]
        for (text, action), completion, reason, earlier in zip(history, words, reasons, whole, strict=True):
            if earlier is not None:
                fields = self._fields(spec, earlier)
                past = self._block("user", variables | fields)
                variables["before"] = fields
            else:
                past = self._block("past", variables | {"text": text}) if "past" in self._template.blocks else text.strip()
            if calls and called_action(completion or "") is None:
                completion = call_of(action)
            messages.append({"role": "user", "content": past or "You see nothing."})
            messages.append({"role": "assistant", "content": completion or action, **({"reasoning": reason} if reason else {})})
        messages.append({"role": "user", "content": self._block("user", variables)})
        return as_calls(messages) if calls else tuple(message for message in messages if message["content"])

    def _fields(self, spec: TextSpec, obs: Mapping[str, Any]) -> dict[str, Any]:
        """Return what a template sees of an observation."""
        names = spec.names(dict(obs))
        if self.by_label and len(names) > len(LABELS):
            raise PolicyError(
                f"strategy {self.config['strategy']!r}: expected at most {len(LABELS)} actions, a label for each; "
                f"got {len(names)}. Take 'unlisted', with which mode 'choose' compares whole names."
            )
        return {"obs": {key: obs[key] for key in spec.fields}, "names": names, "labels": LABELS[: len(names)]}

    def options(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return what an answer in mode ``choose`` is one of: the names of the actions, or the labels that stand for them."""
        return tuple(LABELS[: len(names)]) if self.by_label else names

    def meanings(self, spec: TextSpec, names: Sequence[str]) -> dict[str, str] | None:
        """Return what actions mean where the environment tells it; None if the prompt says it."""
        return {action.name: action.meaning for action in spec.actions if action.name in names} if self.tells_state else None

    def _block(self, name: str, variables: dict[str, Any]) -> str:
        try:
            block = self._template.blocks[name](self._template.new_context(variables))
            return "".join(block).strip()
        except UsageError:
            raise
        except _ERRORS as error:
            message = str(error) or type(error).__name__
            raise UsageError(
                f"strategy {self.config['strategy']!r}: {message}. A template sees spec, obs, names, examples and with_reward."
            ) from error


def json_state(spec: TextSpec, obs: Mapping[str, Any], *, with_reward: bool = False) -> str:
    """Return a situation as a JSON object: the game, the goal, the past steps, and the fields of the observation but its actions.

    Fields and numbers have the names that `spec` gives; numbers have four digits.
    """
    state: dict[str, Any] = {"game": spec.goal, **({"reward": spec.reward} if with_reward else {}), "goal": obs["goal"]}
    if "history" in obs:
        state["past"] = [{"text": text.strip(), "action": action} for text, action in obs["history"]]
    for key, field in spec.fields.items():
        numbers = [float(f"{number:.4g}") for number in np.reshape(obs[key], -1)] if field.quantities else []
        named = dict(zip((quantity.name for quantity in field.quantities), numbers, strict=True))
        state[key] = numbers[0] if field.is_scalar else named or obs[key]
    return json.dumps({key: value for key, value in state.items() if key != "valid_actions"}, ensure_ascii=False)


def _sources(source: str) -> list[str]:
    """Return the sources of a template and of the templates that it includes."""
    sources = [source]
    for name in sorted(filter(None, meta.find_referenced_templates(_SANDBOX.parse(source)))):
        sources += _sources(_LOADER.get_source(_SANDBOX, name)[0])
    return sources
