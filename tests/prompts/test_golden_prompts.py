"""Every strategy's prompt is pinned by a file, in two environments. This file, run as a script, writes them anew."""

from pathlib import Path

import gymnasium as gym
import pytest

import gym_text  # noqa: F401
from gym_text_policies import ScriptedBackend, load_policy
from gym_text_policies.prompts import STRATEGIES, TOOL_STRATEGIES

FOLDER = Path(__file__).parent
IDS = ("BabyAIText-v0", "CookingWorldText-v0")
"""One environment whose actions are always the same, and one that lists the valid ones at each step."""


def prompts(strategy):
    """Return what the model is asked at the third step of an episode, in each environment."""
    parts = []
    for env_id in IDS:
        env, asked = gym.make(env_id, fold="test"), []
        backend = ScriptedBackend(lambda request, asked=asked: asked.append(request.messages) or "?")
        shown = {"shots": 1} if strategy in ("few_shot", "retrieval") else {}
        mode = "tool" if strategy in TOOL_STRATEGIES else "choose" if strategy == "labels" else "text"
        policy = load_policy(backend, env, strategy=strategy, mode=mode, history=2, with_reward=True, **shown)
        env = policy.wrap(env)
        obs, info = env.reset(seed=0)
        spec = env.get_wrapper_attr("text_spec")
        for _ in range(2):
            obs, *_, info = env.step(spec.encode(info.get("gold_action") or obs["valid_actions"][0], obs))
        policy(obs)
        for message in asked[-1]:
            parts.append(f"######## {env_id}, {message['role']}\n{message.get('call', message['content'])}\n")
        env.close()
    return "\n".join(parts)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_prompts_are_as_pinned(strategy):
    path = FOLDER / f"{strategy}.txt"
    assert path.exists(), f"{path} is missing: run python tests/prompts/test_golden_prompts.py"
    assert prompts(strategy) == path.read_text(), (
        "a prompt has changed: if it was meant, run python tests/prompts/test_golden_prompts.py"
    )


if __name__ == "__main__":
    for name in STRATEGIES:
        (FOLDER / f"{name}.txt").write_text(prompts(name))
