"""`LLMPolicy`: a language model as a policy, made of a prompt, a backend and a parser."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text import TextSpec
from gym_text.errors import PolicyError, UsageError, check_choice, check_options
from gym_text.wrappers import History, Picture
from gym_text_policies.answers import reply_to, why_unusable
from gym_text_policies.backends.base import THINKING, Backend, Request
from gym_text_policies.backends.thoughts import thought_apart
from gym_text_policies.policies.config import FIELDS, Depth, Mode, PolicyConfig
from gym_text_policies.policies.examples import FewShot
from gym_text_policies.policies.parsing import names_several, parse_action, read_answer
from gym_text_policies.policies.question import Question, of_names
from gym_text_policies.policies.seen_pictures import EXAMPLE, check_pictures, seen_picture
from gym_text_policies.policy import Policy, check_lists_actions, tempered
from gym_text_policies.prompts import Prompt
from gym_text_policies.prompts.tools import argument_schema, called_action, tool_function
from gym_text_policies.records import Decision, Message, Turn

_MOST_ASKED_AGAIN = 3
"""Most repetitions of a question with ``on_invalid="retry"``."""
_SHORT = 16
"""Most tokens of an answer that is only a short name."""
_OF_REQUEST = (*THINKING, "top_p", "top_k", "min_p")
"""Settings that are fields of a request."""


class LLMPolicy(Policy):
    """Ask a language model for each action.

    Args:
        backend: The model.
        spec: What the environment tells its players.
        config: How the model is asked. Its model and the backend's options are not used here; missing settings are as in
            `DEFAULTS`. `wrap` puts on the wrappers for a history and for pictures. `own_words` needs `rollout` or `Agent`, which
            know the model's answers, and `tokens` needs `rollout`. In mode ``choose`` with a strategy that thinks, the model first
            thinks in words, in a call of its own. In mode ``tool`` the prompts are those that TRL makes of `bridges.trl`: earlier
            actions are calls, and what followed them are the tool's answers.
        examples: The examples of a strategy that shows some.
        to_measure: Whether nobody reads more than what it plays. Then the probabilities of a decision in ``choose`` at temperature
            0 are left out, unless the setting `probabilities` is True.
        settings: Fields of `PolicyConfig` that replace those of `config`.

    Raises:
        UsageError: If the environment does not take these settings.
    """

    def __init__(
        self,
        backend: Backend,
        spec: TextSpec,
        config: PolicyConfig | None = None,
        *,
        examples: FewShot | None = None,
        to_measure: bool = False,
        **settings: Any,
    ) -> None:
        check_options("LLMPolicy", settings, FIELDS)
        given = dataclasses.replace(config or PolicyConfig(), **settings).settings
        super().__init__(spec, seed=given["seed"])
        on_invalid: str = given["on_invalid"]
        if on_invalid not in ("random", "retry", "play", "raise") and spec.encoding not in ("text", "index"):
            check_choice("on_invalid", on_invalid, ["random", "retry", "raise", *(action.name for action in spec.actions)])
        if on_invalid == "play" and spec.encoding != "text":
            raise UsageError(
                "on_invalid='play': expected a game with text actions, which answers any words; this one's are not text."
            )
        self._backend = backend
        self._prompt = Prompt(given["strategy"], with_reward=given["with_reward"])
        if self._prompt.uses_examples and examples is None:
            raise UsageError(f"strategy {given['strategy']!r}: expected examples to show; got none. load_policy collects them.")
        self._thinks = self._prompt.thinks
        self._mode: Mode = given["mode"]
        if self._mode == "choose":
            check_lists_actions(spec, "mode 'choose'")
        self._prompt.check_answers(calls=self._mode == "tool")
        if self._prompt.by_label and (self._mode != "choose" or self._thinks):
            raise UsageError(
                f"strategy {given['strategy']!r}: expected mode='choose', which compares labels; got mode={self._mode!r}."
            )
        if self._prompt.needs_names:
            check_lists_actions(spec, f"strategy {given['strategy']!r}")
        self._history: Depth = given["history"]
        self._tokens: bool = given["tokens"]
        self._own_words: bool = given["own_words"] or self._tokens
        self._examples = examples if self._prompt.uses_examples else None
        self._on_invalid = on_invalid
        self._least_tokens = _least_tokens(self._thinks, self._mode, spec)
        self._max_tokens: int | None = given.get("max_tokens")
        self._temperature = float(given["temperature"])
        self._probabilities: bool = given.get("probabilities", True)
        if not self._probabilities and (self._mode != "choose" or self._temperature > 0):
            raise UsageError(
                "probabilities=False: expected mode='choose' and temperature=0, which play the most probable action; got "
                f"mode={self._mode!r}, temperature={self._temperature}."
            )
        greedy = self._mode == "choose" and self._temperature == 0
        self._best_alone = given.get("probabilities", not (to_measure and greedy)) is False
        self._of_request = {name: given[name] for name in _OF_REQUEST if name in given}
        self._history_thoughts: str = given.get("history_thoughts", "none")
        self._is_told_to_think = given.get("think") not in (None, False)
        if self._prompt.thinks and (self._is_told_to_think or self._history_thoughts != "none"):
            name = "think" if self._is_told_to_think else "history_thoughts"
            raise UsageError(
                f"{name}: expected a strategy whose answer is an action alone, such as 'zero_shot', as the model thinks by itself; "
                f"strategy {given['strategy']!r} asks it to think in words a second time."
            )
        if self._history_thoughts != "none" and self._history == 0:
            raise UsageError(
                f"history_thoughts={self._history_thoughts!r}: expected a history, in which earlier thoughts stand; got history=0."
            )
        self._pictures = bool(given.get("pictures"))
        if self._pictures:
            check_pictures(given, backend)

    @property
    def remote(self) -> bool:
        """Whether its model is a provider's."""
        return self._backend.remote

    @property
    def config(self) -> dict[str, Any]:
        """Model, template, mode and the rest of its settings."""
        return {
            "kind": "llm",
            **self._backend.config,
            **self._prompt.config,
            **(self._examples.config if self._examples else {}),
            "mode": self._mode,
            "history": self._history,
            "own_words": self._own_words,
            "on_invalid": self._on_invalid,
            "max_tokens": self._max_tokens or self._least_tokens,
            "temperature": self._temperature,
            **({"tokens": True} if self._tokens else {}),  # left out if False, as in earlier records
            **({} if self._probabilities else {"probabilities": False}),
            **self._of_request,
            **({} if self._history_thoughts == "none" else {"history_thoughts": self._history_thoughts}),
            **({"pictures": True} if self._pictures else {}),
            "seed": self.seed,
        }

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the wrappers `History` and `Picture`, if the model sees a history and pictures."""
        depth = None if self._history == "all" else self._history
        env = env if depth == 0 else History(env, depth, whole=self._mode == "tool")
        return Picture(env) if self._pictures else env

    def check(self, names: Sequence[str] = ()) -> None:
        """Let the backend check that it can be asked about such actions in this policy's mode, with its temperature and limits."""
        form = "by a call of the tool act" if self._mode == "tool" else "in the form that is asked for"
        messages: list[Message] = [{"role": "user", "content": f"Answer yes or no, {form}."}]
        names = tuple(names) if len(names) > 1 else ("yes", "no")
        request = self._request(messages, names, np.random.default_rng(0), choose=self._mode == "choose")
        picture = seen_picture(EXAMPLE).png if self._pictures else None
        self._backend.check(dataclasses.replace(request, picture=picture))

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Ask the model about all turns together, and again about those whose answers cannot be used."""
        questions = [self._question(turn) for turn in turns]
        (self._let_choose if self._mode == "choose" else self._let_say)(questions)
        return [question.decision() for question in questions]

    def _question(self, turn: Turn) -> Question:
        needed = () if self._history == 0 else ("history", "earlier") if self._mode == "tool" else ("history",)
        for key in (*needed, *(["picture"] * self._pictures)):
            if key not in turn.obs:
                raise UsageError(f"obs: expected the key {key!r}; it is missing. Use policy.wrap(env).")
        examples = self._examples.of(turn.obs) if self._examples else ()
        said = turn.completions if self._own_words else ()
        kept = {"none": len(turn.thoughts), "last": len(turn.thoughts) - 1, "all": 0}[self._history_thoughts]
        thoughts = [thought if step >= kept else None for step, thought in enumerate(turn.thoughts)]
        calls = self._mode == "tool"
        messages = self._prompt.render(self.spec, turn.obs, examples=examples, said=said, thoughts=thoughts, calls=calls)
        question = Question(turn, self.spec.names(dict(turn.obs)), list(messages), keeps_thoughts=self._history_thoughts != "none")
        question.picture = seen_picture(turn.obs["picture"]) if self._pictures else None
        if self._tokens and turn.last and turn.last.tokens and (turn.last.valid or not calls):  # another call stands in its place
            before, thought = len(turn.last.messages), turn.last.tokens_reasoning > 0 or turn.last.thought_cut
            said_since = [message for message in messages[before:] if message["role"] == "assistant"]
            if messages[:before] == turn.last.messages and said_since and ("reasoning" in said_since[0] or not thought):
                question.read = turn.last.tokens.prompt + turn.last.tokens.said
        return question

    def _ask(self, questions: Sequence[Question], *, choose: bool = False) -> None:
        """Ask all questions in one call."""
        requests = []
        for question in questions:
            turn = question.turn
            request = self._request(question.messages, question.names, turn.rng, turn.episode, choose=choose)
            if choose and question.answers and question.answers[-1].reasoning is not None:
                request = dataclasses.replace(request, think=False)  # it has thought before it answered in words
            picture = question.picture.png if question.picture else None
            requests.append(dataclasses.replace(request, tokens=self._tokens, read=question.read, picture=picture))
        for question, answer in zip(questions, self._backend.answer(requests) if requests else [], strict=True):
            if self._tokens and answer.tokens is None:
                raise UsageError(
                    "tokens=True: expected a model that gives its tokens (in this process, or behind llama.cpp or vLLM); "
                    f"{self._backend.config} gives none in mode {self._mode!r}."
                )
            named = of_names(answer, question.names) if choose and self._prompt.by_label else answer
            question.answers.append(thought_apart(named, question.names))

    def _request(
        self, messages: Sequence[Message], names: tuple[str, ...], rng: np.random.Generator, episode: str = "", *, choose: bool
    ) -> Request:
        """Return a request with this policy's settings. If tokens are drawn, of words or of a thought, `rng` seeds the draws."""
        drawn = self._temperature > 0 and (not choose or self._is_told_to_think)
        if drawn and choose:
            (rng,) = rng.spawn(1)  # what is drawn for the thought does not change the draw of the action
        longest = 0 if choose else max(map(self._backend.count, names), default=0)
        schemas = {"json": self._prompt.schema, "tool": argument_schema}
        return Request(
            tuple(messages),
            choices=self._prompt.options(names) if choose else None,
            meanings=self._prompt.meanings(self.spec, names) if choose else None,
            probabilities=not self._best_alone,
            end_of_turn=not self._prompt.by_label,
            schema=schemas[self._mode](self.spec, names) if self._mode in schemas else None,
            tool=tool_function(self.spec) if self._mode == "tool" else None,
            max_tokens=self._max_tokens or self._least_tokens + max(0, longest + 1 - _SHORT),  # room for any valid name
            temperature=self._temperature if drawn else 0.0,
            seed=int(rng.integers(2**31)) if drawn else None,
            episode=episode,
            **self._of_request,
        )

    def _let_choose(self, questions: Sequence[Question]) -> None:
        if self._thinks:
            self._ask(questions)
            for question in questions:
                _, question.reasoning = self._read(question)
                question.say(question.text, "Now name the action that you take, and nothing else.")
        self._ask([question for question in questions if len(question.names) > 1], choose=True)
        for question in questions:
            probabilities = question.probabilities
            if probabilities is None or self._temperature == 0:
                question.action = question.most_probable
            else:
                weights = tempered([probabilities[name] for name in question.names], self._temperature)
                question.action = question.names[question.turn.rng.choice(len(weights), p=weights)]

    def _let_say(self, questions: Sequence[Question]) -> None:
        waiting = questions
        for again in range(1 + _MOST_ASKED_AGAIN if self._on_invalid == "retry" else 1):
            if again:
                for question in waiting:
                    assert question.invalid is not None
                    question.say(question.text, reply_to(question.answers[-1], question.invalid, question.names))
            self._ask(waiting)
            for question in waiting:
                question.action, question.reasoning = self._read(question)
                question.invalid = None
                if question.action is None:
                    several = names_several(question.text, self.spec, question.turn.obs)
                    question.invalid = why_unusable(question.answers[-1], names_several=several, calls=self._mode == "tool")
            waiting = [question for question in waiting if question.action is None]
        for question in waiting:
            question.action = self._instead(question)

    def _read(self, question: Question) -> tuple[str | None, str | None]:
        """Return the action and the reasoning in an answer in words; None for what is missing."""
        said, obs, finish = question.text, question.turn.obs, question.finish
        if self._mode == "tool":
            action = None if question.call is None else called_action(question.call)
            return None if action is None else parse_action(action, self.spec, obs), None
        if not self._thinks and self._mode != "json":
            return parse_action(said, self.spec, obs, finish=finish), None
        action, fields = read_answer(said, self.spec, obs, finish=finish)
        if fields is None:
            return action, said if self._thinks else None
        thoughts = [str(fields[name]) for name in self._prompt.answer if name != "action" and name in fields]
        return action, "\n".join(thoughts) or None

    def _instead(self, question: Question) -> str:
        """Return the action that replaces an unusable answer."""
        if self._on_invalid == "play" or not (question.names or self._on_invalid == "raise"):
            return question.text  # a game that takes any words has no other action to play
        if self._on_invalid in ("random", "retry"):
            return question.names[question.turn.rng.integers(len(question.names))]
        if self._on_invalid == "raise":
            names = ", ".join(map(repr, question.names))
            raise PolicyError(
                f"answer: expected one of {names}; got {question.text!r} ({question.invalid}). Set on_invalid to play on."
            )
        return self._on_invalid


def _least_tokens(thinks: bool, mode: Mode, spec: TextSpec) -> int:
    """Return the default of `max_tokens` for an answer in words, if the names of actions are short."""
    if mode == "tool":
        return 100 if spec.lists_actions else 200
    return 200 if thinks else 60 if mode == "json" or not spec.lists_actions else _SHORT
