"""The runs that the report's tests read."""

import dataclasses

import gymnasium as gym

from gym_text_policies import EpisodeStore, LLMPolicy, ScriptedBackend, as_policy, load_policy, rollout
from gym_text_policies.policy import text_spec

ATTACK = "</script><script>document.title = 'taken'</script><img src=x onerror=\"document.title = 'taken'\">"
SEEDS = range(6)


def make_env():
    """Return a short BabyAI game."""
    return gym.make("BabyAIText-v0", task="goto", fold="test", max_episode_steps=20)


def policies(env):
    """Yield five policies, one of them with an attack in its name and its answer."""
    spec = text_spec(env)
    words = ScriptedBackend([f"turn left {ATTACK}"], name=f"words {ATTACK}")
    yield load_policy("random", env)
    yield LLMPolicy(words, spec, mode="text")
    yield LLMPolicy(ScriptedBackend(["go forward", "turn left"]), spec, mode="choose")
    yield as_policy(lambda obs: 2, env, name="forward")
    yield load_policy("gold", env)


def write_run(parent):
    """Write and return a run folder with an attack in its own name, a policy's name, an observation and an answer."""
    folder = parent / "<script>document.title = 'taken'"
    store = EpisodeStore(folder)
    with make_env() as env:
        for policy in policies(env):
            for episode in rollout(make_env, policy, SEEDS):
                if policy.config["kind"] == "function":
                    first = dataclasses.replace(episode.steps[0], observation=dict(episode.steps[0].observation) | {"text": ATTACK})
                    episode = dataclasses.replace(episode, steps=(first, *episode.steps[1:]), error=ATTACK)
                store.append(episode)
    store.close()
    return folder
