"""Optimisers: they repeat, go on where they stopped, and find something."""

import numpy as np
import pytest
from searches import CAR, config, tried

from gym_text_policies.environments import make_environment
from gym_text_policies.policies.parametric import form_of
from gym_text_policies.search import SearchConfig, search
from gym_text_policies.search.evaluations import Evaluation, Proposal
from gym_text_policies.search.optimisers import CmaOptimiser


@pytest.mark.parametrize("optimiser", ["random", "cma", "gp", "random then cma", "random then gp", "cma then random"])
def test_a_search_repeats_and_goes_on_where_it_stopped(optimiser, tmp_path):
    settings = {"optimiser": optimiser, "evaluations": 25, "max_episode_steps": 60, "refine_at": 11}
    whole = tried(search(config(**settings)))
    assert whole == tried(search(config(**settings)))
    for some in (4, 13, 25):  # in the middle of a generation, too
        part = search(config(**(settings | {"evaluations": some, "folder": str(tmp_path)})))
        assert tried(part) == whole[:some]
    low, high = zip(*[(min(parameters), max(parameters)) for parameters, _ in whole], strict=True)
    assert min(low) >= -6 and max(high) <= 6


def test_searches_of_other_seeds_differ():
    first, second = (search(config(seed=seed)) for seed in (0, 1))
    assert not {p for p, _ in tried(first)} & {p for p, _ in tried(second)}


def test_cma_refines_what_was_found_at_random():
    found = search(SearchConfig(optimiser="random then cma", evaluations=100, folder="", bias=False, bounds=(-7.0, 7.0), seed=100))
    sources = [evaluation.proposal.source for evaluation in found.evaluations]
    assert sources == ["random"] * 50 + ["cma"] * 50
    assert found.best.proposal.source == "cma" and found.best.value > 90


def test_cma_starts_where_an_episode_succeeded():
    form = form_of(make_environment(CAR))
    idle, solved = (Evaluation(i, Proposal((float(i),) * 3, "random"), (-9.0 * i,), (9,), i) for i in (0, 1))
    for history, place in (([idle, solved], 1), ([idle, idle], 0)):
        proposals = CmaOptimiser(form, 0, sigma=1e-6, start=2).propose(history)
        assert len(proposals) > 4 and np.allclose([p.parameters for p in proposals], place, atol=1e-3)
