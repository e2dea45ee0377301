"""`PolicyConfig` describes a policy. Commands, YAML files and Python code give one to `load_policy`.

None means that the user has not given a setting. Then the model's own setting holds, if it has one: an adapter's record says how
the adapter was trained. Else that of `DEFAULTS` holds. What the user gives always wins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

from gym_text.errors import UsageError
from gym_text_policies.backends.chat_format import Think
from gym_text_policies.backends.local.adapters import RECORD, record_of
from gym_text_policies.backends.own_models import is_own, is_own_backend, options_of
from gym_text_policies.backends.provider_table import names_for_help
from gym_text_policies.backends.providers.keys import without_foreign_keys
from gym_text_policies.policies.labels import additions, thinking
from gym_text_policies.policies.setting_checks import check_settings
from gym_text_policies.policies.tree_search import OF_PUCT, Method
from gym_text_policies.prompts import STRATEGIES, TOOL_STRATEGY, Prompt

Mode = Literal["text", "json", "choose", "tool"]
Depth = int | Literal["all"]
MODES = get_args(Mode)
WITHOUT_MODEL = ("random", "gold")
"""Policies that ask no language model."""
_OF_ANY = ("action_rate", "noise", "expert_share", "seed")
"""Settings that any policy takes, not only a language model."""


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """What a language model is asked: the settings of a `PolicyConfig` that training and play share."""

    strategy: str | None = None
    """The prompt's template: zero_shot (the situation and the actions, the default without an adapter), unlisted (without the
    actions, for mode choose), reasoning and reflection (thoughts in words), few_shot and retrieval (with the expert's examples),
    chat (one conversation; with history all, as adapters are trained), labels (the actions behind letters, which mode choose
    compares), words (for games that list no actions), balrog, tenths (numbers alone), compact (tenths or chat), tool and tool_short
    (for mode tool), or the path of a template."""
    history: Depth | None = None
    """Number of earlier steps that the prompt shows, or all."""


@dataclass(frozen=True, kw_only=True)
class PolicyConfig(PromptOptions):
    """Who plays, and how a language model is asked."""

    model: str = field(default="smollm2", kw_only=False, metadata={"more": names_for_help})
    """A language model, or random, gold, module:Name (a policy of your own), sb3:FILE, or the policy.json of a
    search."""
    mode: Mode | None = None
    """How a language model answers: text (in words), json, choose (by a probability for each action), or tool (by a call of the
    function act)."""
    think: Think = None
    """Whether a language model that can think does so before it answers: true, false, or an effort, such as low. By default the
    model does as it does by itself."""
    think_tokens: int | None = None
    """Most tokens of a thought; the default is 2,048. A longer thought is closed there, and the model is asked for its answer."""
    temperature: float | None = None
    """Temperature of a language model's answers: 0 takes the most probable answer; above 0 answers are drawn, from probabilities to
    the power of 1 / temperature."""
    tokens: bool | None = None
    """Whether each decision keeps the tokens of its prompt and its answer with their log-probabilities. Then own_words is on,
    and a prompt that continues the previous prompt begins with exactly that prompt's tokens."""
    noise: float | None = None
    """Probability that an action drawn at random is played instead of the policy's."""
    expert_share: float | None = None
    """Probability that the expert's action is played instead of the policy's."""
    seed: int | None = None
    """Seed of everything that the policy draws at random."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of a language model's backend: dtype, device, base_url, timeout, retries, cache, prices, max_cost … Settings of how
    the model is asked, such as max_tokens, may stand among them. Or options of the class of your own policy."""
    with_reward: bool | None = None
    """Whether the prompt says what is rewarded."""
    own_words: bool | None = None
    """Whether the history shows the model's own answers, not only its actions."""
    deterministic: bool | None = None
    """Whether sb3:FILE plays its most probable action (the default) or draws an action. For a language model set temperature."""
    max_tokens: int | None = None
    """Most tokens of an answer in words. The default is 16, 60 in json, 200 for a strategy that thinks, and more if a valid action
    is longer. An answer that was cut counts only if it is the whole name of an action."""
    on_invalid: str | None = None
    """What is played if an answer cannot be used: random, retry, play, raise, or the name of an action."""
    history_thoughts: Literal["none", "last", "all"] | None = None
    """Which of its earlier thoughts a model that thinks reads again: none (the default), last or all."""
    top_p: float | None = None
    """Tokens are drawn among the most probable ones, whose probabilities sum to at least this."""
    top_k: int | None = None
    """Tokens are drawn among this many most probable ones."""
    min_p: float | None = None
    """Tokens are drawn among those with at least this share of the most probable token's probability."""
    pictures: bool | None = None
    """Whether a language model behind openai: or ollama: also sees the environment's picture of each step."""
    probabilities: bool | None = None
    """Whether each decision in choose says how probable the actions are. If not, a model in this process looks for the most
    probable action alone where there are many: the same one, in less time. By default runs and dev folds leave the probabilities
    out where they play that action and do not look ahead; all else has them."""
    shots: int | None = None
    """Number of examples that few_shot and retrieval show."""
    action_rate: int | None = None
    """Number of steps from one question to the policy to the next; 1 asks at every step. In between the last action is repeated."""
    lookahead: Method | None = None
    """Whether the policy tries actions in copies of the game before it decides, and how: puct (a tree search) or
    best_of_n (episodes drawn from there on). A language model then answers in choose. By default it does not look ahead."""
    simulations: int | None = None
    """Most states in which a policy that looks ahead asks for its own probabilities in one decision; the default is 32. puct makes
    as many simulations, and asks in fewer states."""
    exploration: float | None = None
    """How much the policy's own probabilities count in puct beside the values that simulations give."""
    prior_temperature: float | None = None
    """A policy that looks ahead begins with its own probabilities to the power of 1 / this temperature."""
    uniform_share: float | None = None
    """Share of these probabilities that is spread evenly over all valid actions, from 0 to 1."""

    def __post_init__(self) -> None:
        self._take_settings_from_options()
        check_settings(self)
        if self.strategy is not None and self.strategy not in STRATEGIES:
            Prompt(self.strategy)  # a template of the user's, which may be wrong

    def _take_settings_from_options(self) -> None:
        if not isinstance(self.options, Mapping):
            raise UsageError(f"options: expected names and values; got {self.options!r}.")
        for name in self.options.keys() & set(FIELDS):
            value = self.options[name]
            if name not in SETTINGS or getattr(self, name) not in (None, value):
                raise UsageError(
                    f"options: expected options of the model's backend; got {name}={value!r}, to be set outside options."
                )
            object.__setattr__(self, name, value)
        object.__setattr__(self, "options", {name: value for name, value in self.options.items() if name not in FIELDS})

    of_file = staticmethod(without_foreign_keys)
    """A file alone sends no key to a server that the key does not belong to."""

    @classmethod
    def of(cls, model: str, /, **settings: Any) -> Self:
        """Return a description from flat settings. Settings that are no field of this class become options of the backend."""
        options = settings.pop("options", None) or {}
        return cls(model, options={**options, **settings} if isinstance(options, Mapping) else options)

    @property
    def given(self) -> dict[str, Any]:
        """The settings that were given, by name, without the model and its options."""
        return {name: value for name in SETTINGS if (value := getattr(self, name)) is not None}

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by name, with `DEFAULTS` for those that were not given. Some have no default, such as `max_tokens`."""
        return {**DEFAULTS.given, **self.usual, **self.given}

    @property
    def usual(self) -> dict[str, Any]:
        """Settings that hold in place of those of `DEFAULTS`, because of the mode: a tool's prompts grow, as TRL's do."""
        choosing = {"mode": "choose"} if self.lookahead else {}
        return {"strategy": TOOL_STRATEGY, "history": "all"} if self.mode == "tool" else choosing

    @property
    def rendering(self) -> dict[str, Any]:
        """Arguments of the environment without which the policy cannot play."""
        return {"render_mode": "rgb_array"} if self.pictures else {}

    @property
    def label(self) -> str:
        """A short name for tables."""
        name = self.model if len(self.model) <= 60 else f"{self.model[:59]}…"
        every = f", every {self.action_rate} steps" if (self.action_rate or 1) > 1 else ""
        parts = (self.settings["strategy"], self.settings["mode"], thinking(self.given), "pictures" * bool(self.pictures))
        how = "".join(f", {part}" for part in parts if part and self.asks_model)
        drawn = ", drawn" if self.deterministic is False else ""
        return f"{name}{how}{drawn}{every}{additions(self.settings)}"

    @property
    def asks_model(self) -> bool:
        """Whether the policy is a language model. To find this out for ``module:Name``, the module is imported."""
        if self.model in WITHOUT_MODEL or self.model.endswith(".json") or self.model.startswith("sb3:"):
            return False
        return not is_own(self.model) or is_own_backend(self.model)

    def with_defaults(self, others: PolicyConfig | Mapping[str, Any]) -> Self:
        """Return this description. Settings that were not given come from `others`."""
        known = others.given if isinstance(others, PolicyConfig) else others
        return dataclasses.replace(self, **{name: value for name, value in known.items() if getattr(self, name) is None})

    def for_any(self) -> Self:
        """Return this without the settings that the policy does not take, so that a batch can mix language models and others."""
        nothing: dict[str, Any] = dict.fromkeys(set(SETTINGS) - self._taken)
        taken = self._options_taken
        options = {name: value for name, value in self.options.items() if name in taken}
        return dataclasses.replace(self, options=options, **nothing)

    def check_used(self) -> None:
        """Raise `UsageError` if settings were given that this policy does not take."""
        unused = (self.given.keys() - self._taken) | (self.options.keys() - self._options_taken)
        of_search = unused & set(OF_SEARCH[1:])
        if self.lookahead == "best_of_n" and self.temperature:
            of_search.add("temperature")
        if of_search and "lookahead" not in unused:
            names = ", ".join(sorted(of_search))
            raise UsageError(f"{names}: expected with lookahead alone, such as 'puct'; got lookahead={self.lookahead!r}.")
        if unused:
            expected = ", ".join(sorted(self._options_taken)) or "no options"
            raise UsageError(f"policy {self.model!r}: expected {expected}; got {', '.join(sorted(unused))}.")

    @property
    def _taken(self) -> set[str]:
        """Names of the settings that the policy takes."""
        useless = OF_SEARCH[1:] if self.lookahead is None else () if self.lookahead == "puct" else OF_PUCT
        if self.asks_model:
            return set(SETTINGS) - {"deterministic", *useless}
        if self.model == "random":
            return {*_OF_ANY, *OF_SEARCH}.difference(useless)
        return {*_OF_ANY, *(("deterministic",) if self.model.startswith("sb3:") else ())}

    @property
    def _options_taken(self) -> set[str]:
        """Names of the options that the policy takes; a language model's backend checks them itself."""
        if self.asks_model or not self.options:
            return set(self.options)
        return options_of(self.model) if is_own(self.model) else set()

    def to_json(self) -> dict[str, Any]:
        """Return the description as plain JSON data, without the settings that were not given."""
        return {"model": self.model, **self.given, **({"options": dict(self.options)} if self.options else {})}


OF_SEARCH = ("lookahead", "simulations", "exploration", "prior_temperature", "uniform_share")
"""Settings of looking ahead. Without the first one the others are not used."""
FIELDS = tuple(field.name for field in dataclasses.fields(PolicyConfig))
"""Names of all fields."""
SETTINGS = tuple(name for name in FIELDS if name not in ("model", "options"))
"""Names of the fields that say how the model is asked and what is drawn."""

DEFAULTS = PolicyConfig(
    strategy="zero_shot",
    mode="text",
    history=0,
    with_reward=False,
    own_words=False,
    tokens=False,
    temperature=0.0,
    on_invalid="random",
    shots=3,
    action_rate=1,
    noise=0.0,
    expert_share=0.0,
    simulations=32,
    exploration=1.5,
    prior_temperature=1.0,
    uniform_share=0.0,
    seed=0,
)
"""The settings that hold where neither the user nor the model gives any."""

TRAINED = PolicyConfig(strategy="chat", mode="choose", history="all", with_reward=False)
"""How a new adapter is trained by default: one growing conversation an episode, so that no token is read twice."""

LEARNT = ("strategy", "mode", "history", "with_reward", "own_words", "think")
"""Settings that a model's own record may have: how the model is asked. Only the user may give settings that help the model, cost
money or load files."""


def settings_of(model: str) -> dict[str, Any]:
    """Return how an adapter, or a model that it was merged into, was asked in training; empty for any other model.

    Raises:
        UsageError: If the record is damaged, or says more than how the adapter is asked.
    """
    record, asked = f"adapter {model!r}: {RECORD}", record_of(model).get("asked", {})
    if not isinstance(asked, dict):
        raise UsageError(f"{record}: expected under 'asked' names and values; got {type(asked).__name__}.")
    unknown = sorted(asked.keys() - set(LEARNT))
    if unknown:
        raise UsageError(
            f"{record}: expected under 'asked' only how the model is asked ({', '.join(LEARNT)}); got {', '.join(unknown)}. "
            "Remove that from the file; you can give it yourself."
        )
    try:
        settings = PolicyConfig(model, **asked).given
    except UsageError as error:
        raise UsageError(f"{record}: {error}") from error
    if "strategy" in settings and Prompt(settings["strategy"]).uses_examples:
        raise UsageError(f"{record}: expected a strategy without the expert's examples; got {settings['strategy']!r}.")
    return settings
