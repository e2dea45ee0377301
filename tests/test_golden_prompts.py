"""Every strategy's prompt in every environment is pinned by a file; ``python tests/test_golden_prompts.py`` writes them anew."""

from pathlib import Path

import gymnasium as gym
import pytest
from experts import WITHOUT

import gym_text  # noqa: F401
from gym_text_policies import ScriptedBackend, load_policy
from gym_text_policies.prompts import STRATEGIES, TOOL_STRATEGIES

FOLDER = Path(__file__).parent / "prompts"
IDS = sorted(
    name
    for name, spec in gym.registry.items()
    if "gym_text" in str(spec.entry_point) and ".textworld." not in str(spec.entry_point)
)
"""All but TextWorld's, which is not installed everywhere."""


def prompts(strategy):
    """Return what the model is asked at the third step of an episode, in each environment."""
    parts = []
    for env_id in IDS:
        env, asked = gym.make(env_id, fold="test"), []
        backend = ScriptedBackend(lambda request, asked=asked: asked.append(request.messages) or "?")
        shown = {"shots": 1} if strategy in ("few_shot", "retrieval") else {}
        if shown and env_id in WITHOUT:
            continue  # there is nobody whose episodes could be shown
        mode = "tool" if strategy in TOOL_STRATEGIES else "text"
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
    assert path.exists(), f"{path} is missing: run python tests/test_golden_prompts.py"
    assert prompts(strategy) == path.read_text(), "a prompt has changed: if it was meant, run python tests/test_golden_prompts.py"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in STRATEGIES:
        (FOLDER / f"{name}.txt").write_text(prompts(name))
