"""What `import gym_text` does, and does not do."""

import subprocess
import sys

import gym_text

HEAVY = {"Box2D", "PIL", "jpype", "minigrid", "openai", "orjson", "pygame", "stable_baselines3", "textworld_express", "torch"}
HEAVY |= {"textarena"}


def test_importing_the_environments_loads_nothing_heavy():
    script = "import sys, gym_text; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert loaded.stderr == ""
    assert {name.partition(".")[0] for name in loaded.stdout.split()} & (HEAVY | {"gym_text_policies"}) == set()


def test_a_model_behind_a_server_is_scored_without_torch():
    script = "import sys, gym_text_policies.backends.providers.openai; print('torch' in sys.modules, 'transformers' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert loaded.stdout.split() == ["False", "False"]


def test_public_names_are_few_sorted_and_there():
    assert gym_text.__all__ == sorted(gym_text.__all__)
    assert len(gym_text.__all__) <= 15
    assert all(hasattr(gym_text, name) for name in gym_text.__all__)
