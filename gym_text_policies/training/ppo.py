"""PPO (Schulman et al. 2017, https://arxiv.org/abs/1707.06347) for a language model that plays in ``choose``, from top to bottom.

What is learnt is the probability with which the model plays: over the actions that can be said now. (Over generated tokens, most
probability would first have to move onto words that are actions at all.) Each iteration plays episodes of the train fold by
drawing, then learns from them for some epochs: first the probabilities, then the values, which read what the model sees and do
not change it. A run that was killed goes on from its last checkpoint.

Metrics, one line of ``metrics.jsonl`` for each iteration:

* ``return``, ``success``, ``length``: means of the episodes that were played, by drawing.
* ``dev_success``: share of the dev fold that is won, greedily; where it was played.
* ``policy_loss``: mean of the clipped objective, negated; about 0, its gradient is what counts.
* ``value_loss``: half the mean squared error of the values, the greater one with and without clipping.
* ``explained_variance``: 1 - Var(return - value) / Var(return), before learning; 0: no better than a constant, 1: perfect.
* ``entropy``: mean entropy over the actions, in nats; where it falls to 0, nothing is tried any more.
* ``kl``: mean divergence from the model that training began with, of the whole distribution over the actions, in nats; if it has a
  weight.
* ``kl_weight``: weight of ``kl`` in the loss.
* ``old_kl``: mean of ratio - 1 - log ratio over the last epoch: how far the iteration moved.
* ``clipped``: share of decisions whose ratio is outside the clip range, in the last epoch.
* ``grad_norm``: mean norm of the gradients, before clipping.
* ``rollout_gap``: greatest difference of log-probabilities between play and learning; rounding, or a bug.
* ``steps``, ``seconds_play``, ``seconds_learn``: decisions learnt from, and where the time went.

Probabilities, and so ``entropy`` and ``kl``, are those at the temperature; ``value_loss`` is of scaled rewards, ``return`` is not.
While the values alone are learnt, a line has no ``policy_loss``, ``entropy``, ``kl``, ``old_kl``, ``clipped`` and ``grad_norm``.
With ``plan_advantages`` ``policy_loss`` is the mean divergence from what is to be learnt, in nats, and there is no ``value_loss``,
``explained_variance``, ``clipped`` and ``old_kl``.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text.text_env import Expert
from gym_text.wrappers.exchange_names import ExchangeNames, Names
from gym_text_policies.environments import check_no_fold, environment_maker
from gym_text_policies.load import load_policy
from gym_text_policies.policies.llm import tempered
from gym_text_policies.policy import text_spec
from gym_text_policies.records import Decision, Episode
from gym_text_policies.rollout import MakeEnv, rollout
from gym_text_policies.training.checkpoints import State, load_checkpoint, replace_folder, save_checkpoint, save_weights
from gym_text_policies.training.collect import asked_of
from gym_text_policies.training.processes import add_gradients, claim, gather, is_first, join, share
from gym_text_policies.training.rows import Asked
from gym_text_policies.training.sft import PRECISIONS, play_dev_fold

if TYPE_CHECKING:
    import gymnasium as gym
    import torch

    from gym_text_policies.training.actor_critic import ActorCritic, Candidate, Trajectory
    from gym_text_policies.training.sequences import Reading

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PPOConfig:
    """What is played, and how it is learnt from."""

    folder: str = "runs/ppo"
    """Run folder: checkpoints, metrics.jsonl, and at the end the adapter. A run that was stopped goes on."""
    environments: tuple[str, ...] = ("CookingWorldText-v0",)
    """Environments: ids, with keyword arguments as in BabyAIText-v0?task=goto. Their train fold is played."""
    model: str = "smollm2"
    """The base: smollm2, hf:OWNER/NAME or a folder."""
    adapter: str = ""
    """Folder of the adapter to begin with, which is also what kl is measured to; empty: a new one."""
    interchangeable: tuple[str, ...] = ()
    """Names, such as those of foods, that each episode has exchanged among each other: so that what the text says of a thing is
    learnt, not what its name means in the train fold. See gym-text sft."""
    strategy: str = "chat"
    """How the model is asked, where no adapter says so: a template's name or path."""
    history: str = "all"
    """Steps that it is shown, or all."""
    plan_advantages: bool = False
    """Learn from the steps that a win would take after each candidate, played or not, if the expert played on: there are no values,
    no ratios that are clipped, and what is set for them does nothing. In each decision the objective with a penalty for leaving the
    old policy (Schulman et al. 2017, section 4) has its best answer in closed form, as these advantages are exact: the old
    probabilities times exp(-steps / plan_temperature) (Abdolmaleki et al. 2018, https://arxiv.org/abs/1806.06920); learning brings
    the policy there. That an expert's cost to go teaches more than its actions: Ross and Bagnell 2014,
    https://arxiv.org/abs/1406.5979. For TextWorldExpress's games. The expert knows where things are, so that where one has to be
    searched for, looking where nobody has looked counts as the best candidate (looks_further)."""
    plan_temperature: float = 0.25
    """In steps: a candidate that needs so many more than another has its odds divided by e in an iteration."""
    plan_floor: float = 0.02
    """Share of the old probabilities, for plan_advantages, that is spread evenly over the candidates: else what play never draws is
    hardly learnt. 0 to 0.5."""
    iterations: int = 50
    """How often it plays and learns; a run that is done goes on if this is raised."""
    episodes: int = 16
    """Episodes of each iteration, of all environments in turn."""
    batch: int = 8
    """Episodes that run at once, in each process."""
    first_seed: int = 0
    """Seed of the first episode; each iteration takes new ones."""
    temperature: float = 1.0
    """Scores of the actions are divided by it, in play and in learning; above 1 more is tried. 0.01 to 100."""
    epochs: int = 2
    """How often the episodes of an iteration are learnt from."""
    episodes_per_step: int = 8
    """Episodes of one step of the optimiser."""
    least_probability: float = 0.0
    """Actions that play draws more seldom, and did not take, are left out in learning, but for the four most probable: 0.001 nearly
    halves the work where there are forty. 0 to 0.1."""
    tokens_per_pass: int = 4096
    """Tokens that go through the model at once, with gradients: of several episodes, or of a part of one that is longer, the part's
    first prompt not counted. The result does not depend on it; 1,000 tokens of SmolLM2-135M take 2.5 GB."""
    learning_rate: float = 3e-5
    """Of the adapter."""
    value_learning_rate: float = 1e-4
    """Of the head that says the values."""
    value_epochs: int = 100
    """Steps of the optimiser for it in each iteration, all decisions in each; they take no pass through the model."""
    value_iterations: int = 2
    """Iterations at the start in which the values alone are learnt."""
    reward_scale: float = 1.0
    """Rewards are multiplied by it before they are learnt from: so that returns are of about 1, as value_clip expects."""
    discount: float = 0.99
    """Worth of a reward one step later."""
    decay: float = 0.95
    """Lambda of the generalised advantages."""
    clip: float = 0.2
    """The ratio of new to old probability counts within 1 - clip and 1 + clip."""
    value_clip: float = 0.2
    """Likewise the change of a value, once the probabilities are learnt as well."""
    entropy_weight: float = 0.0
    """Weight of the entropy."""
    kl_weight: float = 0.05
    """Weight of the divergence from the model that training began with; at 0, without a kl_target, that model is not asked."""
    kl_target: float = 0.0
    """If above 0, the weight doubles when kl is more than 1.5 times this, and halves when it is less than 1 / 1.5."""
    max_norm: float = 1.0
    """Gradients longer than this are shortened to it."""
    dev_every: int = 10
    """Iterations between plays of the dev fold; the adapter with the highest success is kept. 0: never, the last one is."""
    dev_episodes: int = 20
    """Episodes of each environment there."""
    precision: str = "float32"
    """Of the products and the base's weights in learning: float32, or bfloat16, as in gym-text sft. Play is in float32."""
    compiled: bool = False
    """Compile the model's layers, as in gym-text sft."""
    seed: int = 0
    """Of all that is drawn at random."""

    def __post_init__(self) -> None:
        check_no_fold("environments", self.environments, "train")
        check_choice("precision", self.precision, PRECISIONS)
        if self.interchangeable:
            Names(self.interchangeable)
        for name in (
            "iterations",
            "episodes",
            "batch",
            "epochs",
            "episodes_per_step",
            "tokens_per_pass",
            "value_epochs",
            "dev_episodes",
        ):
            check_int(name, getattr(self, name), 1, 1_000_000)
        for name in ("first_seed", "dev_every", "value_iterations", "seed"):
            check_int(name, getattr(self, name), 0, 2**31 - 1)
        if not 0.01 <= self.temperature <= 100:
            raise UsageError(f"temperature: expected a number from 0.01 to 100; got {self.temperature!r}.")
        if not 0 <= self.least_probability <= 0.1:
            raise UsageError(f"least_probability: expected a number from 0 to 0.1; got {self.least_probability!r}.")
        if not 0 <= self.plan_floor <= 0.5:
            raise UsageError(f"plan_floor: expected a number from 0 to 0.5; got {self.plan_floor!r}.")
        if not (self.kl_weight >= 0 and self.kl_target >= 0):
            raise UsageError(f"kl_weight, kl_target: expected numbers of at least 0; got {self.kl_weight!r}, {self.kl_target!r}.")
        for name in ("learning_rate", "value_learning_rate", "reward_scale", "clip", "value_clip", "max_norm", "plan_temperature"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}: expected a number above 0; got {getattr(self, name)!r}.")
        if not (0 <= self.discount <= 1 and 0 <= self.decay <= 1):
            raise UsageError(f"discount, decay: expected numbers from 0 to 1; got {self.discount!r}, {self.decay!r}.")


@dataclass(frozen=True)
class Part:
    """Decisions of an episode that are read together."""

    reading: Reading
    places: range
    """Where these decisions are in the batch."""


@dataclass(frozen=True)
class Batch:
    """The decisions of an iteration as they were when played; tensors on the CPU, of shape (decisions, most candidates)."""

    episodes: list[list[Part]]
    logs: torch.Tensor
    """Log-probability of each candidate."""
    reference: torch.Tensor | None
    """Likewise by the model that training began with; None where kl has no weight."""
    counts: torch.Tensor
    """How much each candidate counts: 1 the one that was taken; or, with plan_advantages, the probability that it is to have."""
    advantages: torch.Tensor
    """Of the candidate that was taken, whitened over the batch; shape (decisions, 1)."""
    seen: torch.Tensor
    """What the values are read from; shape (decisions, width of the model)."""
    values: torch.Tensor
    """Of shape (decisions,), as the returns."""
    returns: torch.Tensor
    rollout_gap: float

    def parts(self, numbers: Iterable[int]) -> list[Part]:
        """Return what some episodes consist of."""
        return [part for number in numbers for part in self.episodes[number]]


def train(config: PPOConfig) -> Path:
    """Train, and return the folder of the adapter.

    Raises:
        UsageError: If the run folder or the adapter do not fit; nothing is overwritten.
    """
    torch = import_extra("torch", "train")
    import_extra("peft", "train")
    from gym_text_policies.training.actor_critic import ActorCritic

    free = ("folder", "iterations", "tokens_per_pass", "compiled")
    store = claim("ppo", config, free, {"plan_advantages": False, "plan_temperature": 0.25, "plan_floor": 0.02})
    join()
    torch.manual_seed(config.seed)
    learner = ActorCritic(
        config.model, config.adapter, temperature=config.temperature, precision=config.precision, compiled=config.compiled
    )
    groups = [
        {"params": learner.weights, "lr": config.learning_rate},
        {"params": list(learner.head.parameters()), "lr": config.value_learning_rate},
    ]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.0)
    state = load_checkpoint(Path(config.folder), learner, optimizer) or State(0, config.first_seed, config.kl_weight)
    if len(set(gather([state.iteration]))) > 1:
        raise UsageError(f"folder: expected one that all processes see; {config.folder} has other checkpoints for some.")
    todo = range(state.iteration, config.iterations)
    tqdm = import_extra("tqdm", "bench").tqdm
    for _ in tqdm(todo, initial=state.iteration, total=config.iterations, desc="PPO", disable=not is_first()):
        metrics = iterate(config, learner, optimizer, state)
        if is_first():
            save_checkpoint(Path(config.folder), learner, optimizer, state, metrics)
            _logger.info("%s", json.dumps(metrics))
    if store is not None:
        _save_adapter(config, learner)
        store.close()
    gather([None])  # no process returns before the adapter is there
    return Path(config.folder) / "adapter"


def _save_adapter(config: PPOConfig, learner: ActorCritic) -> None:
    """Save the best adapter, or else the last, beside how it was made."""
    from gym_text_policies.training.lora import environment_record, load_weights, save_adapter

    result, best = Path(config.folder) / "adapter", Path(config.folder) / "best"
    if best.exists():
        load_weights(learner.model, best)
    shutil.rmtree(result, ignore_errors=True)  # of this run, with fewer iterations
    lines = [json.loads(line) for line in (Path(config.folder) / "metrics.jsonl").read_text("utf-8").splitlines()]
    made = {"ppo": dataclasses.asdict(config), "ran_on": environment_record()}
    save_adapter(learner.model, result, {**_asked(config).record(), "made_by": made, "curve": lines})


def _asked(config: PPOConfig) -> Asked:
    """Return how the model is asked: as its adapter has learnt, if there is one."""
    from gym_text_policies.backends.local.models import settings_of

    learnt = settings_of(config.adapter) if config.adapter else {}
    learnt.pop("mode", None)
    return Asked(**learnt) if learnt else asked_of(config.strategy, config.history)


def iterate(config: PPOConfig, learner: ActorCritic, optimizer: torch.optim.Optimizer, state: State) -> dict[str, float]:
    """Play, learn, and play the dev fold where it is due; return the metrics."""
    began = time.perf_counter()
    episodes, trajectories = play(config, learner, state)
    played = time.perf_counter()
    batch = prepare(config, learner, trajectories)
    learnt = learn(config, learner, optimizer, batch, state)
    state.iteration += 1
    if config.kl_target > 0 and "kl" in learnt:
        factor = 2.0 if learnt["kl"] > 1.5 * config.kl_target else 0.5 if learnt["kl"] < config.kl_target / 1.5 else 1.0
        state.kl_weight = min(max(state.kl_weight * factor, 1e-4), 100.0)
    metrics = {
        "iteration": state.iteration,
        "return": sum(episode.total_reward for episode in episodes) / len(episodes),
        "success": sum(episode.outcome == "won" for episode in episodes) / len(episodes),
        "length": sum(episode.length for episode in episodes) / len(episodes),
        **learnt,
        "rollout_gap": batch.rollout_gap,
        "steps": len(batch.logs),
        "seconds_play": round(played - began, 2),
        "seconds_learn": round(time.perf_counter() - played, 2),
    }
    if config.dev_every and state.iteration % config.dev_every == 0:
        won = gather(play_dev_fold(learner.player(), config.environments, share(range(config.dev_episodes)), _asked(config)))
        metrics["dev_success"] = success = sum(won) / len(won)
        if success > state.best_success:
            state.best_success = success
            best = Path(config.folder) / "best"
            if is_first():
                replace_folder(best, lambda folder: save_weights(learner, folder))
    return metrics


def play(config: PPOConfig, learner: ActorCritic, state: State) -> tuple[list[Episode], list[Trajectory]]:
    """Play an iteration's episodes by drawing; return them, and what is learnt from them."""
    from gym_text_policies.training.actor_critic import Trajectory

    asked = _asked(config)
    prompt = asked.prompt()
    player = learner.player()
    episodes: list[Episode] = []
    trajectories = []
    for place, name in enumerate(config.environments):
        count = len(range(place, config.episodes, len(config.environments)))
        make_env = _maker(config, name, "off")
        env = make_env()
        plans = _maker(config, name, "replan")() if config.plan_advantages else None
        if plans is not None and not hasattr(plans.unwrapped, "plan_steps"):
            raise UsageError(f"plan_advantages: expected TextWorldExpress's games, whose expert counts its steps; got {name!r}.")
        policy = load_policy(
            player, env, seed=config.seed, mode="choose", temperature=config.temperature, **dataclasses.asdict(asked)
        )
        seeds = share(range(state.seed, state.seed + count))
        whole = [episode for episode in rollout(make_env, policy, seeds, batch=config.batch) if episode.error is None]
        found = gather([(episode, candidates(config, plans, episode)) for episode in whole])
        spec = text_spec(env)
        for episode, drawn in sorted(found, key=lambda one: one[0].seed):
            episodes.append(episode)
            trajectories.append(Trajectory.of(episode, drawn, spec, asked, prompt, learner.tokenizer, config.tokens_per_pass))
        env.close()
        if plans is not None:
            plans.close()
    if not episodes:
        raise UsageError(f"environments: expected episodes that can be played; all {config.episodes} ended in an error.")
    state.seed += -(-config.episodes // len(config.environments))
    for trajectory in trajectories:
        for reading in trajectory.readings:
            reading.check_window(learner.model.config.max_position_embeddings)
    return episodes, trajectories


def _maker(config: PPOConfig, name: str, expert: Expert) -> MakeEnv:
    """Return what makes an environment, with names exchanged if there are any."""
    make_env = environment_maker(name, **{"fold": "train", "expert": expert})
    return (lambda: ExchangeNames(make_env(), config.interchangeable)) if config.interchangeable else make_env


def candidates(config: PPOConfig, plans: gym.Env[Any, Any] | None, episode: Episode) -> list[list[Candidate]]:
    """Return what is learnt of at each decision of an episode and, where its environment is at hand, steps to a win after it."""
    from gym_text_policies.training.actor_critic import Candidate

    drawn = [drawn_from(config, step.decision) for step in episode.steps]
    if plans is None:
        return [[Candidate(action, share) for action, share in shares.items()] for shares in drawn]
    plan_steps, looks_further = plans.get_wrapper_attr("plan_steps"), plans.get_wrapper_attr("looks_further")
    spec = text_spec(plans)
    obs, _ = plans.reset(seed=episode.seed)
    found = []
    for step, shares in zip(episode.steps, drawn, strict=True):
        actions = [spec.encode(action, obs) for action in shares]
        steps = [plan_steps(action) for action in actions]
        best = min(steps)
        steps = [best if count > best and looks_further(action) else count for action, count in zip(actions, steps, strict=True)]
        found.append([Candidate(action, share, count) for (action, share), count in zip(shares.items(), steps, strict=True)])
        obs = plans.step(spec.encode(step.decision.action, obs))[0]
    return found


def drawn_from(config: PPOConfig, decision: Decision) -> dict[str, float]:
    """Return the actions that are learnt of at a decision, and with which probability play drew each from among these."""
    told = decision.probabilities or {decision.action: 1.0}  # where there was no other
    shares = dict(zip(told, tempered(list(told.values()), config.temperature).tolist(), strict=True))
    least = min(config.least_probability, *sorted(shares.values())[-4:])
    kept = {name: share for name, share in shares.items() if share >= least or name == decision.action}
    whole = sum(kept.values())
    return {name: share / whole for name, share in kept.items()}


def prepare(config: PPOConfig, learner: ActorCritic, trajectories: Sequence[Trajectory]) -> Batch:
    """Return what learning has to know of the moment of play: probabilities, values, advantages."""
    import torch

    from gym_text_policies.training.actor_critic import advantages

    parts: list[list[Part]] = []
    start = 0
    for trajectory in trajectories:
        parts.append([])
        for reading in trajectory.readings:
            stop = start + sum(bool(decided.answers) for decided in reading.decided)
            parts[-1].append(Part(reading, range(start, stop)))
            start = stop
    together = _passes((part for some in parts for part in some), config.tokens_per_pass)
    passes = [[part.reading for part in some] for some in together]
    with torch.no_grad():
        judged = gather([learner.judge(readings).cpu() for readings in share(passes)])
        reference = None
        if config.kl_weight > 0 or config.kl_target > 0:
            with learner.reference():
                reference = _stacked(gather([learner.judge(readings).logs.cpu() for readings in share(passes)]))
        seen = torch.cat([some.seen for some in judged])
        values = learner.values(seen)
        last_values = iter(learner.values(torch.cat([some.last_seen for some in judged])).tolist())
    logs = _stacked([some.logs for some in judged])
    actions = torch.tensor([action for trajectory in trajectories for action in trajectory.actions])
    gains: list[float] = []
    returns: list[float] = []
    for trajectory in trajectories:
        own = values[len(gains) : len(gains) + len(trajectory.actions)].tolist()
        last_value = next(last_values) if trajectory.truncated else 0.0
        rewards = [config.reward_scale * reward for reward in trajectory.rewards]
        gained, returned = advantages(rewards, own, last_value, config.discount, config.decay)
        gains += gained
        returns += returned
    shares = torch.tensor([one for trajectory in trajectories for one in trajectory.shares])
    gap = float((logs.gather(1, actions[:, None])[:, 0] - shares.log()).abs().max())
    gain = torch.tensor(gains)[:, None]
    gain = (gain - gain.mean()) / (gain.std(correction=0) + 1e-6)
    if config.plan_advantages:
        steps = _stacked([torch.tensor([plan]) for trajectory in trajectories for plan in trajectory.plans], math.inf)
        counts = improved(config, logs, steps)
    else:
        counts = torch.nn.functional.one_hot(actions, logs.shape[1]).float()
    return Batch(parts, logs, reference, counts, gain, seen, values, torch.tensor(returns), gap)


def improved(config: PPOConfig, logs: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
    """Return the probabilities that candidates are to have, from those that they had and the steps to a win after them.

    Args:
        config: Of the run.
        logs: Shape (decisions, most candidates); -inf where a decision has fewer.
        steps: Likewise; inf where nothing wins any more.
    """
    said = logs > -math.inf
    best = steps.min(1, keepdim=True).values
    even = said / said.sum(1, keepdim=True)
    old = (1 - config.plan_floor) * logs.exp() + config.plan_floor * even
    new = (old.log() - (steps - best) / config.plan_temperature).softmax(1)
    return new.where(best < math.inf, logs.exp())  # where all is lost, nothing is learnt


def _passes(parts: Iterable[Part], tokens: int) -> list[list[Part]]:
    """Return parts that follow each other, so many together as have at most this number of tokens, or else one."""
    passes: list[list[Part]] = []
    room = 0
    for part in parts:
        size = len(part.reading.tree.tokens)
        if room < size:
            passes.append([])
            room = tokens
        passes[-1].append(part)
        room -= size
    return passes


def _stacked(parts: Sequence[torch.Tensor], fill: float = -math.inf) -> torch.Tensor:
    """Return rows of unequal width as one tensor, filled up."""
    import torch

    width = max(part.shape[1] for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1]), value=fill) for part in parts])


def learn(
    config: PPOConfig, learner: ActorCritic, optimizer: torch.optim.Optimizer, batch: Batch, state: State
) -> dict[str, float]:
    """Learn the probabilities, once it is their time, and the values; return the means of the last epoch's metrics."""
    weight = {"kl_weight": state.kl_weight}
    if config.plan_advantages:
        return weight | _learn_probabilities(config, learner, optimizer, batch, state)
    alone = state.iteration < config.value_iterations
    learnt = {} if alone else _learn_probabilities(config, learner, optimizer, batch, state)
    return weight | learnt | _learn_values(config, learner, optimizer, batch, math.inf if alone else config.value_clip)


def _learn_probabilities(
    config: PPOConfig, learner: ActorCritic, optimizer: torch.optim.Optimizer, batch: Batch, state: State
) -> dict[str, float]:
    import torch

    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + state.iteration)
    said: list[dict[str, float]] = []
    for _ in range(config.epochs):
        said, norms = [], []
        order = torch.randperm(len(batch.episodes), generator=generator).tolist()
        for start in range(0, len(order), config.episodes_per_step):
            step = batch.parts(order[start : start + config.episodes_per_step])
            decisions = sum(len(part.places) for part in step)
            for parts in share(_passes(step, config.tokens_per_pass)):
                sums = losses(config, learner, batch, parts)
                loss = sums["policy_loss"] + state.kl_weight * sums.get("kl", 0.0) - config.entropy_weight * sums["entropy"]
                (loss / decisions).backward()  # type: ignore[no-untyped-call]
                said.append({name: float(value.detach()) for name, value in sums.items()})
            add_gradients(learner.weights)
            norms.append(float(torch.nn.utils.clip_grad_norm_(learner.weights, config.max_norm)))
            optimizer.step()
            optimizer.zero_grad()
    said = gather(said)
    means = {name: sum(sums[name] for sums in said) / len(batch.logs) for name in said[0]}
    return means | {"grad_norm": sum(norms) / len(norms)}


def _learn_values(
    config: PPOConfig, learner: ActorCritic, optimizer: torch.optim.Optimizer, batch: Batch, reach: float
) -> dict[str, float]:
    import torch

    old, returns = batch.values, batch.returns
    unexplained = float((returns - old).var(correction=0)) / max(float(returns.var(correction=0)), 1e-8)
    for _ in range(config.value_epochs):
        values = learner.values(batch.seen)
        near = old + (values - old).clamp(-reach, reach)
        loss = 0.5 * torch.maximum((values - returns) ** 2, (near - returns) ** 2).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return {"value_loss": float(loss.detach()), "explained_variance": 1 - unexplained}


def losses(config: PPOConfig, learner: ActorCritic, batch: Batch, parts: Sequence[Part]) -> dict[str, torch.Tensor]:
    """Return the sums over the decisions of some parts, of the probabilities alone, read in one pass, with gradients."""
    import torch

    places = [place for part in parts for place in part.places]
    logs = learner.judge([part.reading for part in parts]).logs
    said = logs > float("-inf")
    safe = logs.masked_fill(~said, 0.0)

    def own(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[places, : logs.shape[1]].to(logs.device).masked_fill(~said, 0.0)

    probabilities, counts = logs.exp(), own(batch.counts)
    sums = {"entropy": -(probabilities * safe).sum()}
    if batch.reference is not None:
        sums["kl"] = (probabilities * (safe - own(batch.reference))).sum()
    if config.plan_advantages:
        return {"policy_loss": (torch.special.xlogy(counts, counts) - counts * safe).sum()} | sums
    gains = batch.advantages[places].to(logs.device)
    ratio_log = (safe - own(batch.logs)) * (counts > 0)
    ratio = ratio_log.exp()
    clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
    return sums | {
        "policy_loss": -(counts * torch.minimum(ratio * gains, clipped * gains)).sum(),
        "old_kl": (counts * (ratio - 1 - ratio_log)).detach().sum(),
        "clipped": (counts * ((ratio - 1).abs() > config.clip)).sum(),
    }


def run(config: PPOConfig) -> str:
    """Train, and return in words where the adapter is."""
    return f"The adapter: {train(config)}; load_policy takes this folder as a model."
