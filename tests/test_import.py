"""What `import gym_text` does, and does not do."""

import subprocess
import sys
from pathlib import Path

import pytest

import gym_text
import gym_text_policies

HEAVY = {"Box2D", "PIL", "jpype", "minigrid", "openai", "pygame", "stable_baselines3", "textworld_express", "torch"}
HEAVY |= {"textarena"}


def test_importing_the_environments_loads_nothing_heavy():
    script = "import sys, gym_text; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert loaded.stderr == ""
    assert {name.partition(".")[0] for name in loaded.stdout.split()} & (HEAVY | {"gym_text_policies"}) == set()


def test_importing_the_policies_loads_nothing_until_a_name_is_used():
    script = "import sys, gym_text_policies as g; print(*sys.modules); g.Policy; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    before, after = ({name.partition(".")[0] for name in line.split()} for line in loaded.stdout.splitlines())
    assert before & {"gymnasium", "numpy", "gym_text"} == set() and "gymnasium" in after


def test_the_names_of_the_policies_are_sorted_and_there_and_none_is_a_module():
    names = gym_text_policies.__all__
    assert names == sorted(names) == sorted(name for names in gym_text_policies._MODULES.values() for name in names)
    assert len(names) <= 15 and set(names) <= set(dir(gym_text_policies))
    assert all(getattr(gym_text_policies, name).__name__ == name for name in names)
    folder = Path(gym_text_policies.__file__).parent
    assert not any((folder / f"{name}.py").exists() or (folder / name).exists() for name in names), "its import would hide the name"
    with pytest.raises(AttributeError, match="has no attribute 'Polcy'"):
        gym_text_policies.Polcy  # noqa: B018


def test_a_model_behind_a_server_is_scored_without_torch():
    script = "import sys, gym_text_policies.backends.providers.openai; print('torch' in sys.modules, 'transformers' in sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert loaded.stdout.split() == ["False", "False"]


def test_public_names_are_few_sorted_and_there():
    assert gym_text.__all__ == sorted(gym_text.__all__)
    assert len(gym_text.__all__) <= 15
    assert all(hasattr(gym_text, name) for name in gym_text.__all__)
