"""Episodes of one level that run at once, and draw apart."""

from gym_text_policies import rollout
from gym_text_policies.environments import environment_maker
from gym_text_policies.load import load_policy
from gym_text_policies.policies.mixed import SeparateDraws


def test_episodes_of_a_level_differ_and_do_not_depend_on_how_many_run_at_once():
    make = environment_maker("BabyAIText-v0?task=goto&max_episode_steps=6", fold="train")
    with make() as env:
        entropies = [(7, seed, member) for seed in (0, 1) for member in range(3)]

        def played(num_envs):
            policy = SeparateDraws(load_policy("random", env), entropies)
            seeds = [seed for _, seed, _ in entropies]
            episodes = [*rollout(make, policy, seeds, num_envs=num_envs)]
            return sorted((one.seed, [step.decision.action for step in one.steps]) for one in episodes)

        alone, together = played(1), played(8)
    assert alone == together
    assert len({str(actions) for _, actions in alone}) == 6, "each draws for itself"
