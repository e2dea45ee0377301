"""Levels played by Inspect's own evaluation, with a model that answers by rules or by hand; our episodes as its logs."""

import json
import threading

import libraries.walker  # noqa: F401  a provider of Inspect
import pytest
from inspect_ai import eval as evaluate
from inspect_ai.log import read_eval_log
from inspect_ai.model import ChatMessageAssistant, ModelOutput, get_model
from inspect_ai.tool import ToolCall
from libraries.noting import threads

from gym_text_policies.bridges.inspect_ai import panel
from gym_text_policies.cli import main
from gym_text_policies.store import EpisodeStore

GOTO = "BabyAIText-v0?task=goto&max_episode_steps=8"
"""The walker wins three of the first four levels of the test fold within these steps."""
STRATEGIES = {"text": "chat", "tool": "tool"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the run folder of each mode: the walker has played four levels by `gym-text bench`."""
    return {mode: bench(tmp_path_factory.mktemp(mode), mode, strategy) for mode, strategy in STRATEGIES.items()}


def bench(folder, mode, strategy):
    """Let the walker play four levels by `gym-text bench`, and return the run folder."""
    command = ["bench", "--environments", GOTO, "--models", "libraries.walking:walker", "--modes", mode, "--strategy", strategy]
    command += ["--history", "all", "--options", "own_words=true"]
    command += ["--fold", "test", "--llm-episodes", "4", "--baselines", "none"]
    assert main([*command, "--folder", str(folder)]) == 0
    return folder


def stored(folder):
    """Return the model's episodes of a run folder by their seeds."""
    with EpisodeStore(folder) as store:
        return sorted((episode for episode in store if "model" in episode.policy), key=lambda episode: episode.seed)


def played(folder, task, *, script=(), limits=None, **arguments):
    """Run Inspect's evaluation of a task; return its log, and the texts that the model was asked."""
    model = get_model("walker/rules", memoize=False, script=script)
    limits = {"max_samples": 1, **(limits or {})}
    (log,) = evaluate(f"gym_text/{task}", model=model, task_args=arguments, display="none", log_dir=str(folder), **limits)
    assert log.status == "success", log.error
    return log, model.api.asked


def metrics_of(log, name):
    (score,) = [score for score in log.results.scores if score.name == name]
    return {key: metric.value for key, metric in score.metrics.items()}


@pytest.mark.parametrize("mode", STRATEGIES)
def test_inspect_and_bench_give_equal_actions_returns_ends_and_prompts(runs, tmp_path, mode):
    log, _ = played(tmp_path, "levels", environment=GOTO, fold="test", episodes=4, mode=mode)
    episodes = stored(runs[mode])
    assert [sample.metadata["seed"] for sample in log.samples] == [0, 1, 2, 3] == [episode.seed for episode in episodes]
    for sample, episode in zip(log.samples, episodes, strict=True):
        score = sample.scores["episode"]
        assert score.metadata["actions"] == [step.decision.action for step in episode.steps]
        won = float(episode.outcome == "won")
        assert score.value == {"success": won, "return": episode.total_reward, "steps": episode.length, "unusable": 0}
        assert score.answer == episode.outcome
        asked = [
            (message["role"], message["content"], json.loads(message.get("call", "null")))
            for message in episode.steps[-1].decision.messages
        ]
        chat = [
            (message.role, message.text, call[0].arguments if (call := getattr(message, "tool_calls", None)) else None)
            for message in sample.messages
        ]
        assert chat[:-2] == asked
    assert {episode.outcome for episode in episodes} == {"won", "truncated"} and "I go forward." in str(asked)
    assert metrics_of(log, "success")["mean"] == 0.75 and set(metrics_of(log, "return")) == {"mean", "stderr"}


def test_an_answer_that_cannot_be_used_is_kept_as_it_is_told_and_costs_no_step(tmp_path):
    cut = ModelOutput.from_content("walker", "I turn left. Then I", stop_reason="max_tokens")
    script = ["<script>sing</script> {{ 7 * 7 }}", "turn left\nturn right", cut, "", "attachment://00"]
    log, asked = played(tmp_path, "levels", environment=GOTO, episodes=1, script=script)
    (sample,) = log.samples
    assert sample.scores["episode"].value == {"success": 0.0, "return": 0.0, "steps": 0, "unusable": 5}
    assert (sample.scores["episode"].answer, len(asked)) == ("unusable_answers", 5)
    said = [message.text for message in read_eval_log(log.location).samples[0].messages if message.role == "assistant"]
    assert said == [getattr(answer, "completion", answer) for answer in script]
    assert all("Name exactly one of these actions: turn left," in texts[-1] for texts in asked[1:])


def test_only_one_call_of_the_tool_plays(tmp_path):
    def calling(*calls):
        told = [ToolCall(id=f"{n}", function=name, arguments=given) for n, (name, given) in enumerate(calls)]
        return ModelOutput.from_message(ChatMessageAssistant(content="turn left", tool_calls=told or None))

    left = ("act", {"action": "turn left"})
    script = [
        calling(),
        calling(left, left),
        calling(("sing", left[1])),
        calling(left),
        calling(("act", {"action": ["turn left"]})),
        calling(("sing", left[1])),
    ]
    log, asked = played(tmp_path, "levels", environment=GOTO, episodes=1, mode="tool", script=script)
    (sample,) = log.samples
    assert sample.scores["episode"].metadata == {"end": "unusable_answers", "actions": ["turn left"]}
    told = [message for message in sample.messages if message.role == "tool"]
    assert [call.id for message in sample.messages for call in getattr(message, "tool_calls", None) or []] == [
        message.tool_call_id for message in told
    ]
    assert len(asked) == 9 and sample.scores["episode"].value["unusable"] == 8


def test_a_game_begins_and_is_played_outside_of_the_thread_of_inspects_event_loop(tmp_path):
    threads.clear()
    played(tmp_path, "levels", environment="Noting-v0?task=goto&max_episode_steps=3", episodes=1, script=["turn left"])
    assert threads and threading.get_ident() not in threads


@pytest.mark.parametrize(("most", "steps"), [(1, 0), (6, 2)])
def test_a_limit_of_inspect_ends_an_episode_that_is_still_scored(tmp_path, most, steps):
    log, _ = played(tmp_path, "levels", environment=GOTO, episodes=1, limits={"message_limit": most})
    (sample,) = log.samples
    assert (sample.limit.type, sample.scores["episode"].value["steps"]) == ("message", steps)
    assert sample.scores["episode"].answer == "stopped by a limit of Inspect"


def test_the_panels_scores_have_means_by_world_and_its_histories(tmp_path):
    flying = ["fire the main engine"] * 2 + ["sing"] * 5
    task = panel(only="GoTo,LunarLander")
    assert len(task.dataset) == 20
    first = [next(sample.id for sample in task.dataset if sample.metadata["world"] == name) for name in ("GoTo", "LunarLander")]
    log, asked = played(tmp_path, "panel", only="GoTo,LunarLander", script=flying, limits={"sample_id": first})
    assert metrics_of(log, "steps") == {"grouped_GoTo": 0.0, "grouped_LunarLander": 2.0, "grouped_panel": 1.0}
    lengths = [len(texts) for texts in asked]
    assert lengths == [2, 4, 6, 8, 10, *[2, 4, 6], 2, *[2, 4, 6, 8, 10]], lengths  # a prompt of this world has no earlier steps
