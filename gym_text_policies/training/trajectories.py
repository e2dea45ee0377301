"""Episodes that a model plays by drawing from its policy, ready to be learnt from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gym_text import TextSpec
from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.load import load_policy
from gym_text_policies.policies.llm import tempered
from gym_text_policies.policy import text_spec
from gym_text_policies.prompts import Prompt
from gym_text_policies.records import Decision, Episode, Message
from gym_text_policies.rollouts import rollout
from gym_text_policies.training.dev_fold import tell_failures
from gym_text_policies.training.model.checkpoints import State
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.processes import gather, own_share, process_count
from gym_text_policies.training.on_policy import OnPolicyConfig, part_of_iteration

if TYPE_CHECKING:
    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Conversation


@dataclass(frozen=True)
class Trajectory:
    """An episode, ready to be learnt from."""

    environment: str
    """The environment's name, as the settings have it."""
    episode: Episode
    candidates: tuple[dict[str, float], ...]
    """Candidates of each decision, the chosen action among them, with the probabilities by which play drew them."""
    prompts: tuple[tuple[Message, ...], ...]
    """Of each decision, and of the last observation."""

    @classmethod
    def of(cls, config: OnPolicyConfig, environment: str, episode: Episode, spec: TextSpec, prompt: Prompt) -> Trajectory:
        """Return an episode that the model played in ``choose``.

        Args:
            config: Of the run.
            environment: Name of the environment.
            episode: What was played.
            spec: Of its environment.
            prompt: The renderer.
        """
        candidates = tuple(candidates_of(config, step.decision) for step in episode.steps)
        return cls(environment, episode, candidates, tuple(prompts_of(episode, spec, config.prompting, prompt)))

    def conversations(self, config: OnPolicyConfig, actor: Actor, learnt: Sequence[bool] = ()) -> list[Conversation]:
        """Return the decisions with their candidates; after a truncated episode also its last observation, without candidates.

        Args:
            config: Of the run.
            actor: The model.
            learnt: Which decisions; empty: all, and the last observation.

        Raises:
            UsageError: If the episode is longer than the model's window.
        """
        from gym_text_policies.training.model.sequences import Conversation

        conversations = [Conversation()]
        for place, messages in enumerate(self.prompts):
            if learnt and not (place < len(learnt) and learnt[place]):
                continue
            if place < self.episode.length:
                if conversations[-1].size_after_first_prompt > config.tokens_per_pass:
                    conversations.append(Conversation())
                conversations[-1].add(actor.tokenizer, messages, list(self.candidates[place]))
            elif self.truncated:
                conversations[-1].add(actor.tokenizer, messages, ())
        for conversation in conversations:
            conversation.check_window(actor.window)
        return conversations

    @property
    def level(self) -> tuple[str, int]:
        """What was played: the environment and its seed."""
        return self.environment, self.episode.seed

    @property
    def actions(self) -> list[int]:
        """Number of the action that was taken among the candidates, for each decision."""
        taken = zip(self.episode.steps, self.candidates, strict=True)
        return [list(candidates).index(step.decision.action) for step, candidates in taken]

    @property
    def probabilities(self) -> list[float]:
        """Probability with which play drew each action that was taken."""
        taken = zip(self.episode.steps, self.candidates, strict=True)
        return [candidates[step.decision.action] for step, candidates in taken]

    @property
    def rewards(self) -> list[float]:
        """Reward of each step."""
        return [step.reward for step in self.episode.steps]

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut off; the value of its last observation then stands for the rewards that are missing."""
        return not self.episode.steps[-1].terminated


def candidates_of(config: OnPolicyConfig, decision: Decision) -> dict[str, float]:
    """Return the candidates of a decision that are learnt, with the probabilities by which play drew them, summing to 1."""
    played = decision.probabilities or {decision.action: 1.0}  # no probabilities: there was no other action
    probabilities = dict(zip(played, tempered(list(played.values()), config.temperature).tolist(), strict=True))
    least = min(config.least_probability, *sorted(probabilities.values())[-4:])
    kept = {name: value for name, value in probabilities.items() if value >= least or name == decision.action}
    total = sum(kept.values())
    return {name: value / total for name, value in kept.items()}


def play(config: OnPolicyConfig, actor: Actor, state: State, group_size: int = 1) -> list[Trajectory]:
    """Play an iteration's episodes by drawing; every process returns the episodes of all.

    Those that end in an error are told in the log and left out.

    Args:
        config: Of the run.
        actor: The model.
        state: The run's counters.
        group_size: Episodes of each level, drawn independently.

    Raises:
        RunError: If every episode ended in an error, or a return is not finite.
    """
    prompt, player = training_prompt(config.prompting), actor.player()
    options = dataclasses.replace(config.prompting, temperature=config.temperature).given
    trajectories: list[Trajectory] = []
    played: list[Episode] = []
    bar = part_of_iteration("Playing", config.episodes // process_count())
    for place, name in enumerate(config.environments):
        count = len(range(place, config.episodes // group_size, len(config.environments)))
        make_env = config.env_maker(name)
        env = make_env()
        seeds = own_share(range(state.seed, state.seed + count))
        own = []
        for member in range(group_size):
            policy = load_policy(player, env, seed=(config.seed + member * 1_000_003) % 2**31, **options)
            for episode in rollout(make_env, policy, seeds, num_envs=config.batch):
                bar.update()
                own.append(episode)
        found = sorted(gather(own), key=lambda episode: episode.seed)
        played += found
        whole = [episode for episode in found if episode.error is None]
        check_finite(state.place, **{f"the return of {name}, seed {one.seed},": one.total_reward for one in whole})
        trajectories += [Trajectory.of(config, name, episode, text_spec(env), prompt) for episode in whole]
        env.close()
    bar.close()
    tell_failures(state.place, played)
    state.seed += -(-config.episodes // group_size // len(config.environments))
    return trajectories
