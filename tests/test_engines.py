"""Jobs and engines: what is divided among processes, and mistakes in the options."""

import pytest

from gym_text import UsageError
from gym_text_policies.engines.base import EpisodeJob
from gym_text_policies.engines.options import EngineOptions
from gym_text_policies.policies.config import PolicyConfig

GOTO = "BabyAIText-v0?task=goto"


def test_each_process_gets_its_share_of_requests_and_limits():
    job = EpisodeJob(GOTO, {}, PolicyConfig.of("openai:m", max_cost=6.0, max_total_tokens=100, timeout=5), max_concurrency=50)
    part = job.for_one_of(4)
    assert part.policy.options == {"max_cost": 1.5, "max_total_tokens": 25, "timeout": 5}
    assert part.max_concurrency == 13


@pytest.mark.parametrize("options", [{"engine": "rya"}, {"ray_workers": -1}, {"ray_cpus": 0}, {"ray_gpus": -0.5}], ids=str)
def test_a_mistake_in_the_options_of_the_engine_is_named(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        EngineOptions(**options)
