"""From an observation to the messages of a prompt, by templates that are files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError
from jinja2.sandbox import SandboxedEnvironment

from gym_text import TextSpec, UsageError
from gym_text.errors import check_choice
from gym_text_policies.records import Message

_FOLDER = Path(__file__).parent
STRATEGIES = tuple(sorted(path.stem for path in _FOLDER.glob("*.jinja")))


class Prompt:
    """A prompt template: a Jinja file with a block ``system`` and a block ``user``, rendered in Jinja's sandbox.

    A template sees ``spec`` (the `TextSpec`), ``obs`` (the fields that `spec` names, and no others: an expert's hint cannot reach a
    prompt) and ``names`` (the actions that can be said now).

    Args:
        strategy: Name of a template that ships, or the path of one of your own (a ``.jinja`` file).

    Raises:
        UsageError: If there is no such template, or it does not parse or lacks a block.
    """

    def __init__(self, strategy: str) -> None:
        path = Path(strategy)
        if path.suffix != ".jinja":
            check_choice("strategy", strategy, STRATEGIES)
            path = _FOLDER / f"{strategy}.jinja"
        try:
            source = path.read_text("utf-8")
            environment = SandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
            self._template = environment.from_string(source)
        except (OSError, TemplateSyntaxError) as error:
            raise UsageError(f"strategy {strategy!r}: expected a Jinja template; {error}.") from error
        missing = sorted({"system", "user"} - self._template.blocks.keys())
        if missing:
            raise UsageError(f"strategy {strategy!r}: expected the blocks 'system' and 'user'; missing: {', '.join(missing)}.")
        self.config = {"strategy": strategy, "template": hashlib.sha256(source.encode()).hexdigest()[:16]}

    def render(self, spec: TextSpec, obs: Mapping[str, Any]) -> tuple[Message, ...]:
        """Return the messages for one observation.

        Raises:
            UsageError: If a field of `spec` is missing in `obs`, or the template uses a variable that there is not or does what
                the sandbox forbids.
        """
        lacking = sorted(spec.fields.keys() - obs.keys())
        if lacking:
            raise UsageError(f"obs: expected the keys {sorted(spec.fields)}; missing: {lacking}. Use policy.wrap(env).")
        variables = {"spec": spec, "obs": {key: obs[key] for key in spec.fields}, "names": spec.names(dict(obs))}
        try:
            context = self._template.new_context(variables)
            texts = {role: "".join(self._template.blocks[role](context)).strip() for role in ("system", "user")}
        except TemplateError as error:
            raise UsageError(f"strategy {self.config['strategy']!r}: {error}. A template sees spec, obs and names.") from error
        return tuple({"role": role, "content": text} for role, text in texts.items() if text)
