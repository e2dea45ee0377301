"""Play during training: the episodes to learn from, whose actions the model draws, and the dev fold, which measures the model."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gym_text.errors import RunError, UsageError, import_extra
from gym_text_policies.backends.base import Backend
from gym_text_policies.data.rows import prompts_of, training_prompt
from gym_text_policies.environments import environment_maker, environment_name, fold_arguments
from gym_text_policies.load import load_policy, load_to_measure
from gym_text_policies.policies.config import PolicyConfig
from gym_text_policies.policies.mixed import SeparateDraws
from gym_text_policies.policy import Policy, tempered, text_spec
from gym_text_policies.records import Decision, Episode, Message
from gym_text_policies.rollouts import rollout
from gym_text_policies.training.model.saving import Progress, check_finite
from gym_text_policies.training.options import OnPolicyConfig, RewardConfig

if TYPE_CHECKING:
    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Conversation

_logger = logging.getLogger(__name__)
EPISODES_AT_ONCE = 16
"""Episodes that run at once, and ask the model together. An episode does not depend on the others."""
LEAST_PROBABILITY = 0.001
"""A model does not learn about candidates with a smaller probability in play. With CookingWorld's forty candidates
that nearly halves the work; what is left out has 0.002 of the probability."""
_ALWAYS_KEPT = 4
"""This many of the most probable candidates of a decision are learnt, however improbable they are."""


@dataclass(frozen=True)
class Trajectory:
    """An episode with what learning needs of it: the candidates of each decision, their probabilities, and the prompts."""

    environment: str
    """The environment's name, as the settings have it."""
    episode: Episode
    candidates: tuple[dict[str, float], ...]
    """For each decision the candidates that are learnt, with their probabilities in play, the action that was taken among them."""
    prompts: tuple[tuple[Message, ...], ...]
    """The prompt of each decision, and as the last one the prompt that shows the last observation."""

    def conversations(self, config: OnPolicyConfig, actor: Actor, is_learnt: Sequence[bool] = ()) -> list[Conversation]:
        """Return the decisions with their candidates as trees of tokens: one tree, or several for the parts of a long episode.

        For a truncated episode the last observation is one more prompt, without candidates. `is_learnt` says for each decision, and
        maybe for the last observation, whether to include it. If it is empty, all are included.

        Raises:
            UsageError: If the episode is longer than the model's window.
        """
        from gym_text_policies.training.model.sequences import Conversation

        conversations = [Conversation()]
        for step, messages in enumerate(self.prompts):
            if is_learnt and not (step < len(is_learnt) and is_learnt[step]):
                continue
            if step < self.episode.length:
                if conversations[-1].size_after_first_prompt > config.tokens_per_pass:
                    conversations.append(Conversation())
                conversations[-1].add(actor.tokenizer, messages, list(self.candidates[step]))
            elif self.truncated:
                conversations[-1].add(actor.tokenizer, messages, ())
        if (longest := max(conversation.length for conversation in conversations)) > actor.window:
            raise UsageError(
                f"{self.environment}, seed {self.episode.seed}: expected an episode of at most {actor.window} tokens, the model's "
                f"window; got {longest}. Show less history."
            )
        return conversations

    @property
    def level(self) -> tuple[str, int]:
        """The level that was played: the environment and the seed."""
        return self.environment, self.episode.seed

    @property
    def actions(self) -> list[int]:
        """For each decision the index, among the candidates, of the action that was taken."""
        taken = zip(self.episode.steps, self.candidates, strict=True)
        return [list(candidates).index(step.decision.action) for step, candidates in taken]

    @property
    def rewards(self) -> list[float]:
        """Reward of each step."""
        return [step.reward for step in self.episode.steps]

    @property
    def truncated(self) -> bool:
        """Whether the episode ended without termination. Then the value of the last observation stands for all later rewards."""
        return not self.episode.steps[-1].terminated


def play(
    config: OnPolicyConfig,
    actor: Actor,
    progress: Progress,
    group_size: int = 1,
    least_probability: float = LEAST_PROBABILITY,
    load: Callable[..., Policy] = load_policy,
) -> list[Trajectory]:
    """Play an iteration's episodes; the model draws its actions.

    Episodes of one level stand side by side. Episodes that end in an error are logged and left out.

    Args:
        config: Settings of the run.
        actor: The model.
        progress: How far the run is. It determines the seeds: each iteration has other seeds.
        group_size: Number of episodes of each level. Their actions are drawn independently.
        least_probability: Candidates with a smaller probability are left out, except the action that was taken, actions that a
            search has tried or a plan begins with, and the four most probable candidates.
        load: Makes the policy that plays, with the arguments of `load_policy`.

    Raises:
        RunError: If every episode ended in an error, or a return is not finite.
    """
    prompt, player = training_prompt(config.prompting), actor.player()
    options = dataclasses.replace(config.learner(actor), temperature=config.temperature).given
    levels = config.episodes_per_iteration // group_size
    first_seed = config.first_seed + progress.iteration * -(-levels // len(config.environments))
    trajectories: list[Trajectory] = []
    played: list[Episode] = []
    bar = part_of_iteration("Playing", config.episodes_per_iteration)
    for number, name in enumerate(config.environments):
        make_env = config.env_maker(name)
        env = make_env()
        seeds = range(first_seed, first_seed + len(range(number, levels, len(config.environments))))
        members = [(config.seed, seed, member) for seed in seeds for member in range(group_size)]
        policy = load(player, env, seed=config.seed, **options)
        if group_size > 1:
            policy = SeparateDraws(policy, members)
        episodes: list[Episode] = []
        for episode in rollout(make_env, policy, [seed for _, seed, _ in members], num_envs=EPISODES_AT_ONCE):
            bar.update()
            episodes.append(episode)
        episodes.sort(key=lambda episode: (episode.seed, [step.decision.action for step in episode.steps]))  # not by their ends
        played += episodes
        complete = [episode for episode in episodes if episode.error is None]
        returns = {f"the return of {name}, seed {episode.seed},": episode.total_reward for episode in complete}
        check_finite(progress.title, **returns)
        spec = text_spec(env)
        for episode in complete:
            candidates = tuple(candidates_of(step.decision, config.temperature, least_probability) for step in episode.steps)
            prompts = tuple(prompts_of(episode, spec, config.prompting, prompt))
            trajectories.append(Trajectory(name, episode, candidates, prompts))
        env.close()
    bar.close()
    log_failures(progress.title, played)
    return trajectories


def play_groups(config: RewardConfig, actor: Actor, progress: Progress) -> list[Trajectory]:
    """Play an iteration's levels, each several times; the episodes of a level stand side by side."""
    return play(config, actor, progress, config.group_size)


def candidates_of(decision: Decision, temperature: float, least_probability: float) -> dict[str, float]:
    """Return the candidates of a decision that are learnt, with their probabilities in play, scaled so that they sum to 1."""
    played = decision.probabilities or {decision.action: 1.0}  # no probabilities: there was no other action
    probabilities = dict(zip(played, tempered(list(played.values()), temperature).tolist(), strict=True))
    least = min(least_probability, *sorted(probabilities.values())[-_ALWAYS_KEPT:])
    kept = {decision.action, *(decision.visits or ()), *decision.plan[:1]}
    candidates = {name: value for name, value in probabilities.items() if value >= least or name in kept}
    total = sum(candidates.values())
    return {name: value / total for name, value in candidates.items()}


def success_of(played: Sequence[Episode], name: str = "success") -> dict[str, float]:
    """Return the share of episodes that are won, as a metric. It is of those environments that say what a success is, if any."""
    told = {environment_name(episode.environment) for episode in played if episode.tells_success}
    known = [episode for episode in played if environment_name(episode.environment) in told]
    return {name: sum(episode.outcome == "won" for episode in known) / len(known)} if known else {}


def dev_success(player: Backend, environments: Sequence[str], episodes: int, policy: PolicyConfig) -> dict[str, float]:
    """Play each environment's dev fold with a model's most probable actions; return ``dev_success``: see `success_of`.

    An episode that ends in an error is logged, and counts as not won.

    Raises:
        RunError: If all episodes ended in an error.
    """
    played: list[Episode] = []
    for environment in environments:
        make_env = environment_maker(environment, **fold_arguments(environment, "dev"))
        env = make_env()
        learner = load_to_measure(policy, env, player)
        played += rollout(make_env, learner, range(episodes), num_envs=EPISODES_AT_ONCE)
        env.close()
    log_failures("dev fold", played)
    return success_of(played, "dev_success")


def log_failures(where: str, played: Sequence[Episode]) -> None:
    """Log how many episodes ended in an error, and the first of these errors; `where` says in which iteration or fold.

    Raises:
        RunError: If all episodes ended in an error.
    """
    failed = [episode for episode in played if episode.error is not None]
    if not failed:
        return
    first = failed[0]
    level = f"{first.environment['id']}, seed {first.seed}"
    message = f"{where}: {len(failed)} of {len(played)} episodes ended in an error; of {level}: {first.error}"
    if len(failed) == len(played):
        raise RunError(message)
    _logger.warning("%s", message)


def part_of_iteration(what: str, total: int) -> Any:
    """Return a progress bar for a part of an iteration. It counts to `total` and estimates the time that is left."""
    layout = "{desc}: {percentage:.0f} %|{bar}| [{elapsed} so far, {remaining} left]"
    tqdm = import_extra("tqdm.auto", "bench").tqdm
    return tqdm(total=total, desc=what, leave=False, bar_format=layout, disable=None)
