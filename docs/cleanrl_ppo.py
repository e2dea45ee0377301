"""PPO in one file, in the manner of CleanRL (https://docs.cleanrl.dev): a small network learns a text game from nothing.

``python docs/cleanrl_ppo.py`` learns BabyAI's goto in half a minute on one core: success on unseen levels rises from 0.3 to 1.
The wrapper `gym_text.wrappers.EncodeText` gives texts as word ids; the network has a learnt embedding for each word.
Actions that ``infos["action_mask"]`` excludes are never sampled. ``--env-id CoinCollectorText-v0`` has such a mask, with
``--arguments '{"actions": "index"}'``.
"""

import argparse
import json
import time
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv
from torch import nn
from torch.distributions import Categorical

from gym_text.wrappers import EncodeText  # importing gym_text registers its environments


@dataclass
class Args:
    """The options of the command line."""

    env_id: str = "BabyAIText-v0"
    """the environment"""
    arguments: str = '{"task": "goto"}'
    """its keyword arguments, as JSON"""
    seed: int = 0
    """seed of the network, of the environments, and of the sampling"""
    total_timesteps: int = 100_000
    """steps of all environments together"""
    learning_rate: float = 1e-3
    """learning rate of Adam at the start; it falls to 0"""
    num_envs: int = 32
    """environments side by side"""
    num_steps: int = 64
    """steps of each environment in an iteration"""
    gamma: float = 0.97
    """discount"""
    gae_lambda: float = 0.95
    """lambda of generalised advantage estimation"""
    num_minibatches: int = 8
    """parts of an iteration's steps"""
    update_epochs: int = 4
    """passes over an iteration's steps"""
    clip_coef: float = 0.2
    """clipping of the probability ratio"""
    ent_coef: float = 0.01
    """weight of the entropy"""
    vf_coef: float = 0.5
    """weight of the value's error"""
    max_grad_norm: float = 0.5
    """maximum norm of the gradient"""
    length: int = 64
    """words of a text; the rest is cut off"""
    width: int = 128
    """units of a hidden layer"""
    eval_every: int = 5
    """iterations between evaluations"""
    eval_episodes: int = 200
    """episodes of an evaluation, on the seeds 0, 1, … of the fold test, which training does not see"""


class Agent(nn.Module):
    """Actor and critic. Their input is the concatenated embeddings of all words, in order."""

    def __init__(self, envs: VectorEnv, width: int, size: int = 16) -> None:
        super().__init__()
        boxes = list(envs.single_observation_space.values())
        self.embedding = nn.Embedding(1 + max(int(box.high.max()) for box in boxes), size, padding_idx=0)
        self.body = nn.Sequential(
            nn.Linear(size * sum(box.shape[0] for box in boxes), width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.actor = nn.Linear(width, int(envs.single_action_space.n))
        self.critic = nn.Linear(width, 1)
        for layer, gain in ((self.body[0], 2**0.5), (self.body[2], 2**0.5), (self.actor, 0.01), (self.critic, 1.0)):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> tuple[Categorical, torch.Tensor]:
        """Return the distribution of the actions and the values, shape (batch,), for word ids, shape (batch, words)."""
        hidden = self.body(self.embedding(ids).flatten(1))
        return Categorical(logits=self.actor(hidden).masked_fill(~mask, -1e9)), self.critic(hidden).squeeze(1)


def make_envs(args: Args, fold: str, num_envs: int) -> VectorEnv:
    """Return the vector environment."""
    wrappers, arguments = [partial(EncodeText, length=args.length)], json.loads(args.arguments)
    return gym.make_vec(args.env_id, num_envs=num_envs, wrappers=wrappers, fold=fold, expert="off", **arguments)


def tensors(envs: VectorEnv, obs: dict[str, np.ndarray], infos: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the word ids, shape (environments, words), and which actions are valid, shape (environments, actions)."""
    ids = torch.from_numpy(np.concatenate(list(obs.values()), axis=1))
    mask = infos.get("action_mask", np.ones((envs.num_envs, int(envs.single_action_space.n))))
    return ids, torch.from_numpy(mask != 0)


@torch.no_grad()
def evaluate(agent: Agent, args: Args) -> tuple[float, float]:
    """Return the share of episodes won and their mean number of steps, with actions sampled from the agent's distribution."""
    envs = make_envs(args, "test", args.eval_episodes)
    won, over = np.zeros((2, args.eval_episodes), dtype=bool)
    lengths = np.zeros(args.eval_episodes)
    obs, infos = envs.reset(seed=0)
    while not over.all():
        dist, _ = agent(*tensors(envs, obs, infos))
        obs, _, terminations, truncations, infos = envs.step(dist.sample().numpy())
        lengths += ~over
        won |= ~over & infos["success"]
        over |= terminations | truncations
    envs.close()
    return float(won.mean()), float(lengths.mean())


def main(args: Args) -> list[float]:
    """Train; print and return the success at each evaluation."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)  # more threads make networks this small slower
    envs = make_envs(args, "train", args.num_envs)
    agent = Agent(envs, args.width)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    batch_size = args.num_envs * args.num_steps
    num_iterations = max(1, args.total_timesteps // batch_size)
    successes = []
    start, cpu_start = time.perf_counter(), time.process_time()

    def report(steps: int) -> None:
        success, length = evaluate(agent, args)
        successes.append(success)
        minutes, cpu = (time.perf_counter() - start) / 60, (time.process_time() - cpu_start) / 60
        spent = f"{steps:>8,} steps, {minutes:.2f} min ({cpu:.2f} of processor)"
        print(f"{spent}: success {success:.3f}, {length:.1f} steps an episode", flush=True)

    report(0)
    obs, infos = envs.reset(seed=args.seed)
    next_ids, next_mask = tensors(envs, obs, infos)
    next_done = torch.zeros(args.num_envs)
    ids = torch.zeros((args.num_steps, *next_ids.shape), dtype=torch.int32)
    masks = torch.zeros((args.num_steps, *next_mask.shape), dtype=torch.bool)
    actions = torch.zeros((args.num_steps, args.num_envs), dtype=torch.int64)
    logprobs, rewards, terminated, dones, resting, values = torch.zeros((6, args.num_steps, args.num_envs))

    for iteration in range(1, num_iterations + 1):
        optimizer.param_groups[0]["lr"] = (1 - (iteration - 1) / num_iterations) * args.learning_rate
        for step in range(args.num_steps):
            ids[step], masks[step], resting[step] = next_ids, next_mask, next_done
            with torch.no_grad():
                dist, values[step] = agent(next_ids, next_mask)
            actions[step] = dist.sample()
            logprobs[step] = dist.log_prob(actions[step])
            obs, reward, terminations, truncations, infos = envs.step(actions[step].numpy())
            next_ids, next_mask = tensors(envs, obs, infos)
            rewards[step], terminated[step] = torch.as_tensor(reward), torch.as_tensor(terminations)
            next_done = dones[step] = torch.as_tensor(terminations | truncations).float()

        # generalised advantage estimation; with autoreset mode NextStep the final observation of an episode is not replaced
        with torch.no_grad():
            next_value = agent(next_ids, next_mask)[1]
        advantages = torch.zeros_like(rewards)
        lastgaelam = torch.zeros(args.num_envs)
        for t in reversed(range(args.num_steps)):
            delta = rewards[t] + args.gamma * next_value * (1 - terminated[t]) - values[t]
            advantages[t] = lastgaelam = delta + args.gamma * args.gae_lambda * (1 - dones[t]) * lastgaelam
            next_value = values[t]
        returns = advantages + values

        played = (resting == 0).flatten().nonzero().squeeze(1)  # the other steps are resets, which ignore the action
        b_ids, b_masks, b_actions = ids.flatten(0, 1), masks.flatten(0, 1), actions.flatten()
        b_logprobs, b_advantages, b_returns = logprobs.flatten(), advantages.flatten(), returns.flatten()
        for _ in range(args.update_epochs):
            for mb in played[torch.randperm(len(played))].chunk(args.num_minibatches):
                dist, newvalue = agent(b_ids[mb], b_masks[mb])
                ratio = (dist.log_prob(b_actions[mb]) - b_logprobs[mb]).exp()
                mb_advantages = (b_advantages[mb] - b_advantages[mb].mean()) / (b_advantages[mb].std() + 1e-8)
                clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = -torch.min(mb_advantages * ratio, mb_advantages * clipped).mean()
                v_loss = 0.5 * ((newvalue - b_returns[mb]) ** 2).mean()
                loss = pg_loss - args.ent_coef * dist.entropy().mean() + args.vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        if iteration % args.eval_every == 0 or iteration == num_iterations:
            report(iteration * batch_size)
    envs.close()
    return successes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in fields(Args):
        parser.add_argument("--" + field.name.replace("_", "-"), type=type(field.default), default=field.default)
    main(Args(**vars(parser.parse_args())))
