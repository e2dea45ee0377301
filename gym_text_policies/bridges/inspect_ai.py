"""The bridge to Inspect (inspect-ai 0.3): levels of any environment, and the panel's, as tasks of its evaluations.

Read from top to bottom: `levels` and `panel` are the tasks, which Inspect finds by the entry point: ``inspect eval
gym_text/levels -T environment=CookingWorldText-v0 --model ...``. `player` is their solver: it plays an episode as a `Conversation`.
`episode` is their scorer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from anyio.to_thread import run_sync
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import ChatMessage, ChatMessageSystem, ChatMessageTool, ChatMessageUser, GenerateConfig
from inspect_ai.scorer import Metric, Score, Scorer, Target, grouped, mean, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef, ToolParams

from gym_text.errors import UsageError, check_choice, check_int
from gym_text.folds import MAX_SEED, Fold
from gym_text.registration import SERVED
from gym_text.spec import TextSpec
from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.bridges.levels import level_maker, level_row
from gym_text_policies.prompts import TOOL_STRATEGY
from gym_text_policies.prompts.tools import TOOL, called_action, tool_function
from gym_text_policies.run.panel.worlds import SIZES, Size, the_panel

MODES = ("text", "tool")
_STORED = "gym_text"
"""Key of the sample's store under which `player` writes how the episode stands."""
_SCORES = ("success", "return", "steps", "unusable")
_FINISH = {"max_tokens": "length", "model_length": "length", "content_filter": "content_filter"}


def _of_package(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let Inspect name what it registers ``gym_text/NAME``: it takes the name of the package from the function's module."""
    function.__module__ = "gym_text"
    return function


@task
@_of_package
def levels(
    environment: str = SERVED,
    fold: Fold = "test",
    episodes: int = 100,
    first_seed: int = 0,
    mode: str = "text",
    strategy: str | None = None,
) -> Task:
    """Play levels of one environment; each level is a sample.

    Args:
        environment: A registered id, with keyword arguments after a question mark; ``max_episode_steps`` is the step limit.
        fold: The split: train, dev or test. No level is in two folds.
        episodes: Number of levels. Their seeds are `first_seed`, `first_seed` + 1, ...
        first_seed: Seed of the first level.
        mode: How the model answers: text (in words), or tool (by a call of the tool ``act``).
        strategy: The prompts' template: a strategy that shows no examples, or the path of a ``.jinja`` file. By default it is
            ``chat`` in mode text, and ``tool`` in mode tool.
    """
    level_maker(environment, fold)  # refuses what cannot be played before the first sample
    check_int("episodes", episodes, 1, MAX_SEED)
    check_int("first_seed", first_seed, 0, MAX_SEED)
    seeds = range(first_seed, first_seed + episodes)
    return _task(
        [_sample(environment, fold, seed, environment) for seed in seeds],
        player(mode, strategy),
        [mean(), stderr()],
        mode,
    )


@task
@_of_package
def panel(
    size: Size = "small",
    only: str | Sequence[str] | None = None,
    mode: str = "text",
    strategy: str | None = None,
) -> Task:
    """Play the panel: a fixed list of worlds, levels and limits. Each score has a mean for each world, and the worlds' mean.

    Args:
        size: How many levels of each world are played: small (10), medium (40) or full (200).
        only: Worlds that are played, with commas between; by default all.
        mode: See `levels`.
        strategy: See `levels`.
    """
    check_choice("size", size, SIZES)
    worlds, fold = the_panel().worlds, the_panel().fold
    names = only.split(",") if isinstance(only, str) else list(only or worlds)
    for name in names:
        check_choice("only", name, worlds)
        if worlds[name].history not in (None, 0):
            raise UsageError(f"world {name}: expected the history 0 or all, as Inspect plays no other; got {worlds[name].history}.")
    samples = [
        _sample(worlds[name].environment, fold, seed, name, worlds[name].history)
        for name in names
        for seed in the_panel().levels(name, size)
    ]
    return _task(samples, player(mode, strategy), [grouped(mean(), "world", all="groups", all_label="panel")], mode)


def _sample(environment: str, fold: Fold, seed: int, world: str, history: int | None = None) -> Sample:
    """Return a level. This starts no episode: `player` writes the messages."""
    level = level_row(environment, fold, seed)
    name = level.pop("id")
    return Sample(id=name, input=name, metadata={**level, "world": world, **({} if history is None else {"history": history})})


def _task(samples: Iterable[Sample], player: Solver, metrics: list[Metric], mode: str) -> Task:
    return Task(
        dataset=MemoryDataset(samples),
        solver=player,
        scorer=episode(),
        metrics={name: metrics for name in _SCORES},
        config=GenerateConfig(parallel_tool_calls=False if mode == "tool" else None),
    )


@solver
@_of_package
def player(mode: str = "text", strategy: str | None = None) -> Solver:
    """Let the model play the sample's level to its end, or until a limit of Inspect; see `levels` for the arguments."""
    check_choice("mode", mode, MODES)
    strategy = strategy or (TOOL_STRATEGY if mode == "tool" else "chat")

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        level = state.metadata
        game = Conversation(level_maker(level["environment"], level["fold"]), strategy, calls=mode == "tool")
        try:
            await run_sync(game.begin, level["seed"])
            state.store.set(_STORED, _standing(game))  # first, as Inspect may end the sample at any message
            if mode == "tool":
                state.tools, state.tool_choice = [_act(game.spec)], "any"
            state.messages = _chat(game)
            while game.end is None and not state.completed:
                state = await generate(state, tool_calls="none")
                steps = game.steps
                state.messages.extend(await run_sync(_called if mode == "tool" else _said, state, game))
                state.store.set(_STORED, _standing(game))
                if level.get("history") == 0 and game.steps > steps and game.end is None:
                    state.messages = _chat(game)
        finally:
            game.close()
        return state

    return solve


def _chat(game: Conversation) -> list[ChatMessage]:
    roles = {"system": ChatMessageSystem, "user": ChatMessageUser}
    return [roles[message["role"]](content=message["content"]) for message in game.chat()]


def _said(state: TaskState, game: Conversation) -> list[ChatMessage]:
    """Play the words of the last answer, and return what the model is told."""
    return [ChatMessageUser(content=game.play(state.output.completion, finish=_FINISH.get(state.output.stop_reason)))]


def _called(state: TaskState, game: Conversation) -> list[ChatMessage]:
    """Play the last answer's call, and return the tool's answer. No call, or several, is an unusable answer."""
    calls = state.output.message.tool_calls or []
    usable = len(calls) == 1 and calls[0].function == TOOL and calls[0].parse_error is None
    text = game.play((called_action(json.dumps(calls[0].arguments)) if usable else None) or "")
    if not calls:
        return [ChatMessageUser(content=text)]
    return [ChatMessageTool(content=text, tool_call_id=call.id, function=call.function) for call in calls]


def _act(spec: TextSpec) -> Tool:
    """Return the tool by whose calls a model plays. It is never run: `player` plays the calls."""

    async def act(action: str) -> str:
        return action

    function = tool_function(spec)
    parameters = ToolParams.model_validate(function["parameters"])
    return ToolDef(act, TOOL, function["description"], parameters, parallel=False).as_tool()


def _standing(game: Conversation) -> dict[str, Any]:
    """Return how an episode stands, as plain JSON."""
    return {**game.metrics, "return": game.score, "end": game.end, "actions": list(game.actions)}


@scorer(metrics={name: [mean(), stderr()] for name in _SCORES})
@_of_package
def episode() -> Scorer:
    """Score an episode: success (1 or 0), return, steps, and number of unusable answers."""

    async def score(state: TaskState, target: Target) -> Score:
        data = state.store.get(_STORED) or dict.fromkeys(_SCORES, 0) | {"end": None, "actions": []}  # no level had begun
        end = data["end"] or "stopped by a limit of Inspect"
        return Score(
            value={name: data[name] for name in _SCORES},
            answer=end,
            explanation=f"{end} after {data['steps']} steps",
            metadata={"end": data["end"], "actions": data["actions"]},
        )

    return score
