"""Episodes as logs of Inspect (inspect-ai 0.3), which ``inspect view`` opens: a log for each environment and policy.

A step is the situation, as the model saw it, and the model's answer. The metadata of the answer has the action, its reward and
score, the probabilities, and what else the record has. A thought is reasoning content; a call of the tool is a tool call.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from gym_text.errors import import_extra
from gym_text_policies.environments import environment_name, level_id
from gym_text_policies.files.json_data import without_surrogates
from gym_text_policies.files.redaction import without_secrets
from gym_text_policies.prompts.tools import TOOL, called_action
from gym_text_policies.records import Decision, Episode, Message, Step
from gym_text_policies.terminal.notebooks import player

_OF_DECISION = (
    *("valid", "invalid", "finish", "thought_cut", "retries", "probabilities", "probability_kind", "visits", "values", "plan"),
    *("turns_dropped", "tokens_in", "tokens_cached", "tokens_out", "tokens_reasoning", "seconds", "cost"),
)
"""The fields of a decision that its message's metadata has, where they differ from their defaults."""
_LONGEST_NAME = 60


def write_inspect_logs(folder: Path, episodes: Iterable[Episode]) -> list[Path]:
    """Write a log for each environment and policy into a folder, and return the files.

    Raises:
        MissingDependencyError: If inspect-ai is not installed.
    """
    log = import_extra("inspect_ai.log", "inspect")
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(json.dumps([episode.environment, episode.policy], sort_keys=True), []).append(episode)
    files = []
    for number, group in enumerate(groups.values()):
        written = _log(group)
        name = re.sub(r"[^\w.]+", "-", f"{written.eval.task}-{written.eval.model}")[:_LONGEST_NAME].strip("-")
        files.append(folder / f"{written.eval.created[:19].replace(':', '-')}_{name}_{number}.eval")
        log.write_eval_log(written, str(files[-1]))
    return files


def _log(episodes: list[Episode]) -> Any:
    """Return the log of the episodes of one policy in one environment."""
    log = import_extra("inspect_ai.log", "inspect")
    first, now = episodes[0], datetime.now(UTC).isoformat(timespec="seconds")
    name, model = environment_name(first.environment), f"gym-text/{player(first.policy)}"
    times: dict[int, int] = {}
    samples = []
    for episode in episodes:
        times[episode.seed] = times.get(episode.seed, 0) + 1
        samples.append(_sample(episode, level_id(episode.environment, None, episode.seed), times[episode.seed], model))
    return log.EvalLog(
        status="success",
        eval=log.EvalSpec(
            created=now,
            task=name,
            model=model,
            dataset=log.EvalDataset(name=name, samples=len(times), sample_ids=list(dict.fromkeys(s.id for s in samples))),
            config=log.EvalConfig(epochs=max(times.values())),
            packages={"gym-text": version("gym-text")},
            task_args=without_surrogates(first.environment),
            model_args=without_surrogates(without_secrets(dict(first.policy))),
        ),
        results=_results(episodes),
        stats=log.EvalStats(started_at=now, completed_at=now),
        samples=samples,
    )


def _sample(episode: Episode, name: str, epoch: int, model: str) -> Any:
    """Return the sample of an episode."""
    log, models = import_extra("inspect_ai.log", "inspect"), import_extra("inspect_ai.model", "inspect")
    scorers = import_extra("inspect_ai.scorer", "inspect")
    sums = {"input_tokens": episode.tokens_in, "output_tokens": episode.tokens_out, "reasoning_tokens": episode.tokens_reasoning}
    usage = models.ModelUsage(**sums, total_tokens=episode.tokens_in + episode.tokens_out, total_cost=episode.cost or None)
    actions = [step.decision.action for step in episode.steps]
    score = scorers.Score(value=_scores(episode), answer=episode.outcome, metadata=without_surrogates({"actions": actions}))
    messages = _messages(episode)
    texts = {key: value for key, value in episode.last_observation.items() if isinstance(value, str)}
    trace = without_surrogates(episode.traceback or "")
    error = log.EvalError(message=without_surrogates(episode.error or ""), traceback=trace, traceback_ansi=trace)
    return log.EvalSample(
        id=name,
        epoch=epoch,
        input=without_surrogates(name),
        target="",
        messages=messages,
        output=models.ModelOutput.from_message(messages[-1]) if episode.steps else models.ModelOutput(model=model),
        scores=None if episode.error else {"episode": score},
        metadata=without_surrogates(
            {"seed": episode.seed, "level": episode.level, "outcome": episode.outcome, "last_observation": texts}
        ),
        model_usage={model: usage},
        total_time=episode.seconds,
        error=error if episode.error else None,
    )


def _scores(episode: Episode) -> dict[str, float]:
    """Return what the task ``gym_text/levels`` scores, too."""
    won = float(episode.outcome == "won")
    return {"success": won, "return": episode.total_reward, "steps": episode.length, "unusable": episode.invalid}


def _results(episodes: list[Episode]) -> Any:
    """Return the means of the scores, with their standard errors."""
    log = import_extra("inspect_ai.log", "inspect")
    scored = [_scores(episode) for episode in episodes if episode.error is None]
    scores = []
    for name in scored[0] if scored else ():
        numbers = [one[name] for one in scored]
        error = stdev(numbers) / math.sqrt(len(numbers)) if len(numbers) > 1 else 0.0
        metrics = {key: log.EvalMetric(name=key, value=value) for key, value in (("mean", fmean(numbers)), ("stderr", error))}
        scores.append(log.EvalScore(name=name, scorer="episode", metrics=metrics, scored_samples=len(numbers)))
    return log.EvalResults(total_samples=len(episodes), completed_samples=len(scored), scores=scores)


def _messages(episode: Episode) -> list[Any]:
    """Return an episode as one chat. A prompt's earlier steps, and a system message that is repeated, are left out."""
    chat: list[Any] = []
    for number, step in enumerate(episode.steps):
        prompt = step.decision.messages or ({"role": "user", "content": str(step.observation.get("text", step.observation))},)
        if number:
            answers = [place for place, message in enumerate(prompt) if message["role"] == "assistant"]
            behind = prompt[answers[-1] + 1 :] if answers else prompt
            prompt = tuple(message for message in behind if message["role"] != "system")
        chat += [_message(message, f"call{number}") for message in prompt]
        chat.append(_answer(step, f"call{number + 1}", calls=episode.policy.get("mode") == "tool"))
    return chat


def _message(message: Message, call: str) -> Any:
    """Return a message of a prompt; `call` is the call that a tool's message answers."""
    models = import_extra("inspect_ai.model", "inspect")
    text = without_surrogates(message["content"])
    if message["role"] == "assistant":  # of an example
        return models.ChatMessageAssistant(content=text or without_surrogates(message.get("call", "")))
    if message["role"] == "tool":
        return models.ChatMessageTool(content=text, tool_call_id=call, function=TOOL)
    return (models.ChatMessageSystem if message["role"] == "system" else models.ChatMessageUser)(content=text)


def _answer(step: Step, call: str, *, calls: bool) -> Any:
    """Return the model's answer at a step, or the action of a policy without a model."""
    models, tools = import_extra("inspect_ai.model", "inspect"), import_extra("inspect_ai.tool", "inspect")
    decision = step.decision
    said = decision.action if decision.completion is None else decision.completion
    action = called_action(said) if calls else None
    content = [models.ContentReasoning(reasoning=without_surrogates(decision.reasoning))] if decision.reasoning else []
    content.append(models.ContentText(text=without_surrogates(said) if action is None else ""))
    return models.ChatMessageAssistant(
        content=content,
        tool_calls=None
        if action is None
        else [tools.ToolCall(id=call, function=TOOL, arguments={"action": without_surrogates(action)})],
        metadata=without_surrogates(_metadata(step, decision)),
    )


def _metadata(step: Step, decision: Decision) -> dict[str, Any]:
    """Return what a step's record has beside the texts."""
    data = {"action": decision.action, "reward": step.reward, "score": step.score, "gold_action": step.gold_action}
    usual = Decision("")
    known = {name: value for name in _OF_DECISION if (value := getattr(decision, name)) != getattr(usual, name)}
    ends = {name: True for name in ("terminated", "truncated", "success") if getattr(step, name)}
    return {key: value for key, value in data.items() if value is not None} | known | ends
