"""The most probable candidate is found without the others' probabilities: the same one, with fewer tokens read."""

import random

import gymnasium as gym
import numpy as np
import pytest

from gym_text import UsageError
from gym_text_policies import LLMPolicy, PolicyError, Turn, load_policy
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local import transformers
from gym_text_policies.backends.local.best_first import find, search
from gym_text_policies.backends.local.cached import CachedPrefixes, RereadPrefixes
from gym_text_policies.backends.local.packed import PackedPrefixes
from gym_text_policies.backends.local.prefixes import Candidates, candidate_log_probs
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policies.lookahead import LookAhead, SearchSettings
from gym_text_policies.policy import text_spec

END = 2


@pytest.fixture(autouse=True)
def _searching(monkeypatch):
    """Search among few candidates, too."""
    monkeypatch.setattr(transformers, "_FEW_TOKENS", 0)


@pytest.mark.parametrize("way", [PackedPrefixes, CachedPrefixes, RereadPrefixes])
def test_the_search_finds_what_all_scores_say(small_model, way):
    draw, network = random.Random(0), small_model[0]
    prefixes, others = way(network, 4000), way(network, 4000)
    for _ in range(6):
        prompts = [tuple(draw.choices(range(5, 60), k=draw.randrange(1, 30))) for _ in range(3)]
        several = [[[*draw.choices((7, 8, 9), k=draw.randrange(1, 6))] for _ in range(draw.randrange(1, 25))] for _ in prompts]
        requests = zip(others.open(prompts), prompts, several, strict=True)
        trees = [Candidates.of(*request, END) for request in requests]
        expected = [list(map(sum, rows)) for rows in candidate_log_probs(others, trees)]
        requests = zip(prefixes.open(prompts), prompts, several, strict=True)
        for found, scores, tokens in zip(find(prefixes, [search(*one, END) for one in requests]), expected, several, strict=True):
            assert scores[found.index] == pytest.approx(max(scores), abs=1e-4)
            assert sum(found.log_probs) == pytest.approx(max(scores), abs=1e-4)
            assert found.tokens == (*tokens[found.index], END) and tokens.index(tokens[found.index]) == found.index
    if way is not RereadPrefixes:
        assert all(prefixes.match((*prompt, 5)) >= len(prompt) - 1 for prompt in prompts), "the prompts are remembered"


def question(*choices, **options):
    return Request(({"role": "user", "content": "A red ball is 2 steps left."},), choices, **options)


def test_an_answer_names_the_most_probable_choice_and_reads_less(small_model):
    names = [
        f"{verb} the {thing} {where}" for verb in ("go", "turn", "drop") for thing in ("left", "right") for where in "abcdefgh"
    ]
    full, alone = TransformersBackend(*small_model, "m"), TransformersBackend(*small_model, "m")
    (answer,) = full.answer([question(*names, tokens=True)])
    (named, again) = alone.answer([question(*names, tokens=True, probabilities=False)] * 2)
    assert named.choice == max(names, key=answer.probabilities.__getitem__)
    assert named.probabilities is None and named.text is None
    assert again.choice == named.choice and again.tokens_cached == again.tokens_in
    theirs, own = answer.tokens[named.choice], named.tokens[named.choice]
    assert (own.prompt, own.said) == (theirs.prompt, theirs.said)
    assert own.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)
    assert named.tokens_in < 3 * answer.tokens_in, "random weights find all names about equally probable"


def test_a_model_that_prefers_some_words_reads_few_of_the_others():
    env = gym.make("CookingWorldText-v0", fold="train", expert="off")
    obs, _ = env.reset(seed=1)
    decisions = []
    for probabilities in (True, False):
        policy = load_policy("smollm2", env, mode="choose", strategy="zero_shot", tokens=True, probabilities=probabilities)
        decisions += policy.decide([Turn(obs, np.random.default_rng(0))])
    full, alone = decisions
    prompt = len(full.tokens.prompt)
    assert alone.action == full.action and alone.tokens.said == full.tokens.said
    assert alone.tokens_in - prompt < (full.tokens_in - prompt) / 2


@pytest.mark.parametrize("bad", [float("nan"), -float("inf")])
def test_predictions_that_are_no_numbers_are_an_error(small_model, bad, monkeypatch):
    backend = TransformersBackend(*small_model, "m")
    compute = backend._prefixes.compute
    monkeypatch.setattr(backend._prefixes, "compute", lambda branches: [logits.fill_(bad) for logits in compute(branches)])
    with pytest.raises(PolicyError, match="expected a log-probability of each choice; got NaN"):
        backend.answer([question("go left", "go right", "drop", probabilities=False)])


def make():
    return gym.make("BabyAIText-v0", task="goto", fold="train", expert="off", max_episode_steps=6)


def test_an_only_action_is_certain(small_model):
    policy = LLMPolicy(TransformersBackend(*small_model, "m"), text_spec(make()), mode="choose", probabilities=False)
    obs = make().reset(seed=0)[0] | {"valid_actions": ("drop",)}
    (decision,) = policy.decide([Turn(obs, np.random.default_rng(0))])
    assert decision.action == "drop" and decision.probabilities == {"drop": 1.0} and decision.tokens_in == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "text"}, r"probabilities=False: expected mode='choose' and temperature=0.*got mode='text', temperature=0\.0\."),
        ({"mode": "choose", "temperature": 1}, r"got mode='choose', temperature=1\.0\."),
        ({"mode": "choose", "lookahead": "puct"}, r"probabilities=False: expected no lookahead.*got lookahead='puct'"),
    ],
)
def test_what_needs_probabilities_is_refused(small_model, settings, message):
    with pytest.raises(UsageError, match=message):
        load_policy(TransformersBackend(*small_model, "m"), make(), probabilities=False, **settings)
    player = LLMPolicy(TransformersBackend(*small_model, "m"), text_spec(make()), mode="choose", probabilities=False)
    with pytest.raises(UsageError, match="expected no lookahead"):
        LookAhead(player, SearchSettings.of(PolicyConfig(lookahead="puct").settings))
