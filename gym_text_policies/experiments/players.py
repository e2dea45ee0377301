"""`Players`: who plays in the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gym_text.errors import UsageError, check_choice
from gym_text_policies.backends.chat_format import Think
from gym_text_policies.backends.provider_table import names_for_help
from gym_text_policies.experiments.trust import Trust
from gym_text_policies.experiments.variants import Variant, read_variants
from gym_text_policies.policies.config import MODES, Mode, PolicyConfig, PromptOptions, settings_of
from gym_text_policies.policies.labels import thinking

EXPERT = "gold (expert)"
"""Label of the expert's row."""


@dataclass(frozen=True, kw_only=True)
class Players(PromptOptions, Trust):
    """Who plays, a row for each."""

    usual_modes: ClassVar[tuple[Mode, ...]] = ("text", "choose")  # of a model if neither the user nor its training says one

    models: tuple[str, ...] | None = field(default=None, metadata={"more": names_for_help})
    """Who plays: language models, module:Name (a policy of your own), sb3:FILE (a model of stable-baselines3), the policy.json of a
    search, random, gold, controller. By default smollm2, the embedded model."""
    modes: tuple[Mode, ...] = ()
    """How language models answer: text, json, choose or tool. Each mode is a row. By default an adapter answers in the mode in
    which it was trained, and any other model has two rows, text and choose."""
    temperatures: tuple[float, ...] = ()
    """Temperatures of the language models' actions, such as 0 1: each is a row. At 0, the default, a model takes its most probable
    action; at 1 it draws actions by their probabilities."""
    think: Think = None
    """Whether a language model that can think does so before it answers: true, false, or an effort, such as low. By default the
    model does as it does by itself."""
    think_tokens: int | None = None
    """Most tokens of a thought; the default is 2,048."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the language models' backend: dtype, device, base_url, timeout, cache, prices, max_cost …"""
    variants: str = ""
    """A YAML file that names rows, in place of models and modes. Each row has the settings of its policy, such as model and mode.
    In bench it may have its own number of episodes."""

    def __post_init__(self) -> None:
        for mode in self.modes:
            check_choice("mode", mode, MODES)

    def rows(self) -> dict[str, Variant]:
        """Return the rows that the user asks for: name -> policy, number of episodes and environments."""
        thought: dict[str, Any] = {"think": self.think, "think_tokens": self.think_tokens}
        if self.variants:
            own = {"options": self.options or None, "temperatures": self.temperatures or None, **thought}
            given = [name for name, value in own.items() if value is not None]
            if given:
                raise UsageError(
                    f"{given[0]}: expected none together with variants; write each row's settings into the file, as in device: cpu."
                )
            return read_variants(self.variants, self.trust)
        models = ("smollm2",) if self.models is None else self.models
        asking = [model for model in models if PolicyConfig(model).asks_model]
        rows = {label_of(model): Variant(PolicyConfig(model)) for model in models if model not in asking}
        thinks = f", {said}" if (said := thinking(thought)) else ""
        heats = {at_temperature(number): {"temperature": number} for number in self.temperatures} or {"": {}}
        return rows | {
            f"{model}, {mode}{thinks}{name}": Variant(self.asking(model, mode=mode, options=self.options, **thought, **heat))
            for model in asking
            for mode in self.modes or self._modes_of(model)
            for name, heat in heats.items()
        }

    def _modes_of(self, model: str) -> tuple[Mode, ...]:
        """Return the modes of a language model's rows: the mode in which an adapter was trained, else the usual ones."""
        trained: Mode | None = settings_of(model).get("mode")
        return (trained,) if trained else self.usual_modes


def at_temperature(number: float) -> str:
    """Return what the name of a row says of a temperature."""
    return f", temperature {number:g}"


def label_of(model: str) -> str:
    """Return the label of a row without a language model."""
    return EXPERT if model == "gold" else model
