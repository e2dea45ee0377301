"""What on-policy training has in common: the model plays by drawing, learns from what it played, and plays anew.

`gym_text_policies.training.ppo` and `gym_text_policies.training.aggrevate` say what is learnt. Here is the rest: their common
settings, the steps of the optimiser, the dev fold, checkpoints and the adapter at the end. Play is in
`gym_text_policies.training.trajectories`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text.hints import Expert
from gym_text.registration import TRAINING
from gym_text.wrappers.exchange_names import ExchangeNames, Names
from gym_text_policies.data.rows import prompt_record, trained_as
from gym_text_policies.environments import check_no_fold, environment_maker
from gym_text_policies.folders import replace_folder
from gym_text_policies.game import MakeEnv
from gym_text_policies.policies.config import PolicyConfig, PromptOptions
from gym_text_policies.records import Episode
from gym_text_policies.training.dev_fold import play_dev_fold
from gym_text_policies.training.model import checkpoints
from gym_text_policies.training.model.checkpoints import State
from gym_text_policies.training.model.finite import check_finite
from gym_text_policies.training.model.lora import (
    PRECISIONS,
    TRAINING_DEVICES,
    Precision,
    TrainingDevice,
    environment_record,
    load_weights,
)
from gym_text_policies.training.model.processes import add_gradients, gather, is_first, own_share, process_count
from gym_text_policies.training.model.saving import save_adapter
from gym_text_policies.training.model.trackers import Tracker, check_tracker, start_tracker

if TYPE_CHECKING:
    import torch

    from gym_text_policies.training.model.actor_critic import Actor
    from gym_text_policies.training.model.sequences import Conversation, Segment

_logger = logging.getLogger(__name__)
FREE = ("folder", "iterations", "tokens_per_pass", "compiled", "gradient_checkpointing", "device", "report_to")
"""Settings that may change when a run is continued."""


@dataclass(frozen=True)
class OnPolicyConfig(PromptOptions):
    """Settings that all on-policy training has."""

    folder: str = "runs/on-policy"
    """Run folder: checkpoints, metrics.jsonl, and at the end the adapter. A run that was stopped goes on."""
    environments: tuple[str, ...] = (TRAINING,)
    """Environments: ids, with keyword arguments as in BabyAIText-v0?task=goto. Their train fold is played."""
    model: str = "smollm2"
    """The base: smollm2, hf:OWNER/NAME or a folder."""
    adapter: str = ""
    """Folder of the adapter to begin with, from which kl is measured as well; empty: a new one."""
    interchangeable: tuple[str, ...] = ()
    """Names, such as those of foods, that are exchanged with each other in each episode. The model then has to read what the text
    says of a thing, and cannot remember what its name means in the train fold. See gym-text sft."""
    iterations: int = 50
    """How often it plays and learns; a run that is done goes on if this is raised."""
    episodes: int = 16
    """Episodes of each iteration, dealt to the environments in turn."""
    batch: int = 8
    """Episodes that run at once, in each process."""
    first_seed: int = 0
    """Seed of the first episode; each iteration takes new ones."""
    temperature: float = 1.0
    """Scores of the actions are divided by it, in play and in learning; above 1 more is tried. 0.01 to 100."""
    epochs: int = 2
    """How often the episodes of an iteration are learnt from."""
    episodes_per_step: int = 8
    """Episodes in one step of the optimiser."""
    least_probability: float = 0.0
    """Candidates that play draws more rarely are left out in learning, except the action that was taken and the four most probable.
    0.001 nearly halves the work where there are forty. 0 to 0.1."""
    tokens_per_pass: int = 4096
    """Tokens that go through the model at once, with gradients: several episodes, or a part of a longer one, whose first prompt
    does not count. The result does not depend on it; 1,000 tokens of SmolLM2-135M take 2.5 GB."""
    learning_rate: float = 3e-5
    """Learning rate of the adapter."""
    entropy_weight: float = 0.0
    """Weight of the entropy."""
    kl_weight: float = 0.05
    """Weight of kl, the divergence from the model that training began with; at 0, without a kl_target, that model is not run."""
    kl_target: float = 0.0
    """If above 0, kl_weight doubles when kl is more than 1.5 times this, and halves when it is less than this / 1.5."""
    max_norm: float = 1.0
    """Gradients longer than this are shortened to it."""
    dev_every: int = 10
    """Iterations between plays of the dev fold, which is played before the first, too. The iteration that wins most of it is kept.
    0: never, and the last one is."""
    dev_episodes: int = 20
    """Episodes of each environment there."""
    precision: Precision = "float32"
    """Precision of products and of the weights, in play and of the base in learning: float32, or bfloat16, as in gym-text sft."""
    compiled: bool = False
    """Compile the model's layers, as in gym-text sft."""
    gradient_checkpointing: bool = False
    """Keep little of the layers and compute them again for the gradients, as in gym-text sft; more tokens_per_pass then fit."""
    device: TrainingDevice = "auto"
    """Where to learn: auto (CUDA where there is one, else MPS, else the CPU) or cpu. CUDA_VISIBLE_DEVICES picks one of several."""
    report_to: Tracker = "none"
    """Where else the metrics of each iteration go."""
    seed: int = 0
    """Seed of everything that is drawn at random."""

    def __post_init__(self) -> None:
        check_no_fold("environments", self.environments, "train")
        check_choice("precision", self.precision, PRECISIONS)
        check_choice("device", self.device, TRAINING_DEVICES)
        check_tracker(self.report_to)
        if self.interchangeable:
            Names(self.interchangeable)
        for name in ("iterations", "episodes", "batch", "epochs", "episodes_per_step", "tokens_per_pass", "dev_episodes"):
            check_int(name, getattr(self, name), 1, 1_000_000)
        for name in ("first_seed", "dev_every", "seed"):
            check_int(name, getattr(self, name), 0, 2**31 - 1)
        self.check_ranges(temperature=(0.01, 100), least_probability=(0, 0.1))
        self.check_positive("learning_rate", "max_norm")
        if not (self.kl_weight >= 0 and self.kl_target >= 0):
            raise UsageError(f"kl_weight, kl_target: expected numbers of at least 0; got {self.kl_weight!r}, {self.kl_target!r}.")

    def check_ranges(self, **ranges: tuple[float, float]) -> None:
        """Raise `UsageError` unless each named setting is within its range."""
        for name, (least, most) in ranges.items():
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"{name}: expected a number from {least} to {most}; got {getattr(self, name)!r}.")

    def check_positive(self, *names: str) -> None:
        """Raise `UsageError` unless each named setting is above 0."""
        for name in names:
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}: expected a number above 0; got {getattr(self, name)!r}.")

    @functools.cached_property
    def prompting(self) -> PolicyConfig:
        """How the model is prompted: as given, else as the adapter was trained, else as new adapters are."""
        return trained_as(self.asking(self.model, mode="choose"), self.adapter)

    @property
    def has_reference(self) -> bool:
        """Whether kl counts, so that the model that training began with is run."""
        return self.kl_weight > 0 or self.kl_target > 0

    @property
    def actor_options(self) -> dict[str, Any]:
        """The settings that `Actor` takes."""
        return {name: getattr(self, name) for name in ("temperature", "precision", "compiled", "gradient_checkpointing", "device")}

    def env_maker(self, name: str, expert: Expert = "off") -> MakeEnv:
        """Return a function that makes an environment of the train fold, with names exchanged if there are any."""
        make_env = environment_maker(name, **{"fold": "train", "expert": expert})
        return (lambda: ExchangeNames(make_env(), self.interchangeable)) if self.interchangeable else make_env


# ---------------------------------------------------------------- learning


def generalised_advantages(
    rewards: Sequence[float], values: Sequence[float], last_value: float, discount: float, decay: float
) -> tuple[list[float], list[float]]:
    """Return generalised advantages (Schulman et al. 2015, https://arxiv.org/abs/1506.02438) and returns of one episode.

    Args:
        rewards: Of each step.
        values: Of the observation before each step.
        last_value: Of the observation after the last step; 0 where the episode terminated, as no reward can follow.
        discount: Worth of a reward one step later.
        decay: Lambda, from 0 (one step and the value) to 1 (all rewards).

    >>> generalised_advantages([0.0, 1.0], [0.5, 0.5], 0.0, 1.0, 1.0)
    ([0.5, 0.5], [1.0, 1.0])
    >>> generalised_advantages([0.0, 1.0], [0.5, 0.5], 2.0, 1.0, 0.0)
    ([0.0, 2.5], [0.5, 3.0])
    """
    advantages: list[float] = []
    next_advantage, next_value = 0.0, last_value
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        delta = reward + discount * next_value - value
        next_advantage = delta + discount * decay * next_advantage
        advantages.append(next_advantage)
        next_value = value
    advantages.reverse()
    return advantages, [advantage + value for advantage, value in zip(advantages, values, strict=True)]


def reference_log_probs(config: OnPolicyConfig, actor: Actor, groups: Sequence[list[Segment]]) -> torch.Tensor | None:
    """Return the candidates' log-probabilities by the model that training began with, or None where kl has no weight.

    Args:
        config: Of the run.
        actor: The model.
        groups: Segments, grouped into passes.

    Returns:
        Shape (decisions, most candidates), on the CPU.
    """
    from gym_text_policies.training.model.sequences import stack_padded

    if not config.has_reference:
        return None
    with actor.reference():
        return stack_padded(gather([actor.evaluate(conversations_of(group)).log_probs.cpu() for group in own_share(groups)]))


def conversations_of(group: Sequence[Segment]) -> list[Conversation]:
    """Return the conversations of a pass."""
    return [segment.conversation for segment in group]


def entropy_and_kl(log_probs: torch.Tensor, reference: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Return the sums over some decisions of ``entropy`` and, if there is a reference, of ``kl`` from it, in nats.

    Args:
        log_probs: Shape (decisions, candidates), -inf where a decision has fewer.
        reference: The same by the model that training began with.
    """
    is_candidate = log_probs > float("-inf")
    probabilities, finite = log_probs.exp(), log_probs.masked_fill(~is_candidate, 0.0)
    sums = {"entropy": -(probabilities * finite).sum()}
    if reference is not None:
        sums["kl"] = (probabilities * (finite - reference.masked_fill(~is_candidate, 0.0))).sum()
    return sums


def update_policy(
    config: OnPolicyConfig,
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    state: State,
    parts: Sequence[list[Segment]],
    parts_per_step: int,
    losses: Callable[[list[Segment]], dict[str, torch.Tensor]],
) -> dict[str, float]:
    """Learn for all epochs in minibatches of whole parts; return the last epoch's metrics, as means over its decisions.

    Args:
        config: Of the run.
        actor: The model.
        optimizer: Of its parameters.
        state: The run's counters.
        parts: What is drawn into minibatches: the segments of each episode, or of each level.
        parts_per_step: How many of them are learnt from in one step of the optimiser.
        losses: What a pass learns: sums over its decisions of ``policy_loss``, ``entropy``, ``kl`` (if it has a reference) and
            other metrics. The loss is policy_loss + kl_weight * kl - entropy_weight * entropy.
    """
    import torch

    from gym_text_policies.training.model.sequences import passes

    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + state.iteration)
    decisions_in_all = config.epochs * sum(len(segment.rows) for part in parts for segment in part)
    bar = part_of_iteration("Learning", decisions_in_all // process_count())
    for _ in range(config.epochs):
        sums: list[dict[str, float]] = []
        norms: list[float] = []
        order = torch.randperm(len(parts), generator=generator).tolist()
        for start in range(0, len(order), parts_per_step):
            minibatch = [segment for part in order[start : start + parts_per_step] for segment in parts[part]]
            decisions = sum(len(segment.rows) for segment in minibatch)
            for group in own_share(passes(minibatch, config.tokens_per_pass)):
                found = losses(group)
                loss = found["policy_loss"] + state.kl_weight * found.get("kl", 0.0) - config.entropy_weight * found["entropy"]
                check_finite(state.place, loss=loss, **found)
                (loss / decisions).backward()  # type: ignore[no-untyped-call]
                bar.update(sum(len(segment.rows) for segment in group))
                sums.append({name: float(value.detach()) for name, value in found.items()})
            add_gradients(actor.parameters)
            norms.append(float(torch.nn.utils.clip_grad_norm_(actor.parameters, config.max_norm)))
            check_finite(state.place, grad_norm=norms[-1])
            optimizer.step()
            optimizer.zero_grad()
    bar.close()
    sums = gather(sums)
    decisions = sum(len(segment.rows) for part in parts for segment in part)
    means = {name: sum(found[name] for found in sums) / decisions for name in sums[0]}
    return means | {"grad_norm": sum(norms) / len(norms)}


# ---------------------------------------------------------------- the run


def iterations(config: OnPolicyConfig, actor: Actor, optimizer: torch.optim.Optimizer) -> Iterator[State]:
    """Yield the run's counters once for each iteration that is missing, from the last checkpoint on.

    Raises:
        UsageError: If the checkpoint is not whole, or processes see different checkpoints.
    """
    state = checkpoints.load_checkpoint(Path(config.folder), actor, optimizer) or State(0, config.first_seed, config.kl_weight)
    if len(set(gather([state.iteration]))) > 1:
        raise UsageError(f"folder: expected one that all processes see; {config.folder} has other checkpoints for some.")
    if config.dev_every and not state.iteration:
        _save_line(config, {"iteration": 0, "episodes": 0, "minutes": 0.0, "dev_success": _dev_success(config, actor)})
    missing = range(state.iteration, config.iterations)
    tqdm = import_extra("tqdm", "bench").tqdm
    log = start_tracker(config.report_to if is_first() else "none", config.folder, dataclasses.asdict(config))
    for _ in tqdm(missing, initial=state.iteration, total=config.iterations, desc="Iterations", disable=not is_first()):
        yield state
        if is_first():
            log(_lines(config)[-1], state.iteration)


class Stopwatch:
    """Seconds of an iteration: first play, then learning."""

    def __init__(self) -> None:
        self._began = self._played = time.perf_counter()

    def played(self) -> None:
        """Note that play is over."""
        self._played = time.perf_counter()

    def seconds(self) -> dict[str, float]:
        """Return the seconds of play and, up to now, of learning."""
        now = time.perf_counter()
        return {"seconds_play": round(self._played - self._began, 2), "seconds_learn": round(now - self._played, 2)}


def end_iteration(
    config: OnPolicyConfig,
    actor: Actor,
    optimizer: torch.optim.Optimizer,
    state: State,
    episodes: Sequence[Episode],
    metrics: dict[str, float],
) -> None:
    """Count an iteration, adapt kl_weight, play the dev fold where it is due, and save a checkpoint with the metrics."""
    check_finite(state.place, **metrics)
    state.iteration += 1
    state.episodes += len(episodes)
    state.minutes += (metrics["seconds_play"] + metrics["seconds_learn"]) / 60
    if config.kl_target > 0 and "kl" in metrics:
        factor = 2.0 if metrics["kl"] > 1.5 * config.kl_target else 0.5 if metrics["kl"] < config.kl_target / 1.5 else 1.0
        state.kl_weight = min(max(state.kl_weight * factor, 1e-4), 100.0)
    metrics = {
        "iteration": state.iteration,
        "episodes": state.episodes,
        "minutes": round(state.minutes, 3),
        "return": sum(episode.total_reward for episode in episodes) / len(episodes),
        "success": sum(episode.outcome == "won" for episode in episodes) / len(episodes),
        "length": sum(episode.length for episode in episodes) / len(episodes),
        "steps": sum(episode.length for episode in episodes),
        "failed": config.episodes - len(episodes),
        **metrics,
    }
    record = prompt_record(config.prompting)
    if config.dev_every and state.iteration % config.dev_every == 0:
        metrics["dev_success"] = _dev_success(config, actor)
        if metrics["dev_success"] > state.best_success:
            state.best_success = metrics["dev_success"]
            if is_first():
                replace_folder(Path(config.folder) / "best", lambda folder: checkpoints.save_weights(actor, folder, record))
    _save_line(config, metrics)
    if is_first():
        checkpoints.save_checkpoint(Path(config.folder), actor, optimizer, state, record)


def _save_line(config: OnPolicyConfig, metrics: dict[str, float]) -> None:
    if is_first():
        checkpoints.save_metrics(Path(config.folder), metrics)
        _logger.info("%s", json.dumps(metrics))


def _dev_success(config: OnPolicyConfig, actor: Actor) -> float:
    """Return the share of the dev fold's episodes that the model wins."""
    won = play_dev_fold(actor.player(), config.environments, config.dev_episodes, config.prompting)
    return sum(won) / len(won)


def part_of_iteration(what: str, total: int) -> Any:
    """Return a bar on the terminal for a part of an iteration, which counts to `total` and says how long it will take."""
    tqdm = import_extra("tqdm", "bench").tqdm
    layout = "{desc}: {percentage:.0f} %|{bar}| [{elapsed} so far, {remaining} left]"
    return tqdm(total=total, desc=what, leave=False, bar_format=layout, disable=None if is_first() else True)


def _lines(config: OnPolicyConfig) -> list[dict[str, float]]:
    """Return the metrics of all iterations."""
    return [json.loads(line) for line in (Path(config.folder) / "metrics.jsonl").read_text("utf-8").splitlines()]


def finish(algorithm: str, config: OnPolicyConfig, actor: Actor) -> Path:
    """Save the adapter that was best in the dev fold, or else the last, with how it was made; return its folder."""
    result, best = Path(config.folder) / "adapter", Path(config.folder) / "best"
    if is_first():
        if best.exists():
            load_weights(actor.model, best)
        made_by = {algorithm: dataclasses.asdict(config), "ran_on": environment_record()}
        record = {**prompt_record(config.prompting), "made_by": made_by, "curve": _lines(config)}
        save_adapter(actor.model, result, record, replace=True)  # there may be this run's own, after fewer iterations
    gather([None])  # no process returns before the adapter is there
    return result
