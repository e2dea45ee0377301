"""REINFORCE in plain torch: a language model samples actions in BabyAI's goto, and learns from its returns.

python docs/reinforce.py --start MODEL_FOLDER --bf16
"""

import argparse
import copy
import functools

import gymnasium as gym
import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

import gym_text  # noqa: F401  registers the environments
from gym_text_policies import LLMPolicy, rollout
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.data.arrays import decisions_of


def scores(model, prompts, candidates, end):
    """Return log P(candidate | prompt), of shape (decisions, candidates), with gradients; each prompt is computed once."""
    pad = functools.partial(pad_sequence, batch_first=True, padding_value=end)
    tokens = pad([torch.from_numpy(prompt) for prompt in prompts], padding_side="left")
    lengths = torch.tensor([[len(prompt)] for prompt in prompts])
    mask = torch.arange(tokens.shape[1]) >= tokens.shape[1] - lengths
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    read = model(tokens, attention_mask=mask.long(), position_ids=positions, use_cache=True, logits_to_keep=1)
    each = len(candidates[0])  # in goto, six
    read.past_key_values.batch_repeat_interleave(each)
    flat = [torch.from_numpy(candidate) for names in candidates for candidate in names]
    rows = pad(flat)[:, :-1]
    mask = torch.cat([mask.repeat_interleave(each, 0), torch.ones_like(rows, dtype=torch.bool)], dim=1)
    positions = lengths.repeat_interleave(each, 0) + torch.arange(rows.shape[1])
    later = model(rows, attention_mask=mask.long(), position_ids=positions, past_key_values=read.past_key_values).logits
    log_probs = torch.cat([read.logits.repeat_interleave(each, 0), later], dim=1).float().log_softmax(-1)
    return torch.stack([log_probs[i, range(len(c)), c].sum() for i, c in enumerate(flat)]).view(len(prompts), each)


def play(model, tokenizer, make_env, levels, *, draws=1, temperature=1.0, dtype=torch.float32, seed=0):
    """Return the episodes of a model that samples actions; it plays each level `draws` times."""
    backend = TransformersBackend(copy.deepcopy(model).to(dtype), tokenizer, "learner", optimise=True)
    spec, ask = make_env().get_wrapper_attr("text_spec"), {"strategy": "chat", "history": 0, "mode": "choose"}
    policies = [LLMPolicy(backend, spec, temperature=temperature, seed=seed * draws + draw, **ask) for draw in range(draws)]
    return [episode for policy in policies for episode in rollout(make_env, policy, levels, num_envs=8)]


def won(episodes):
    """Return the share of episodes that was won."""
    return sum(episode.outcome == "won" for episode in episodes) / len(episodes)


def train(model, tokenizer, make_env, *, iterations, levels=8, draws=4, learning_rate=5e-6, decisions=64, **drawing):
    """Train. Yield the share of won episodes of each iteration, before its update. `drawing` are further arguments of `play`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    for iteration in range(iterations):
        seeds = range(iteration * levels, (iteration + 1) * levels)
        played = play(model, tokenizer, make_env, seeds, draws=draws, seed=iteration, **drawing)
        yield won(played)
        d = decisions_of(played, tokenizer)
        advantages = d.returns - [d.returns[d.groups == level].mean() for level in d.groups]  # baseline: the level's mean
        chosen = np.random.permutation(np.flatnonzero(advantages))[:decisions]
        for mb in (chosen[start : start + 8] for start in range(0, len(chosen), 8)):
            with torch.autocast("cpu", torch.bfloat16, enabled=drawing.get("dtype") == torch.bfloat16):
                summed = scores(model, [d.prompts[i] for i in mb], [d.candidates[i] for i in mb], tokenizer.eos_token_id)
            taken = (summed / drawing.get("temperature", 1.0)).log_softmax(-1)[range(len(mb)), d.actions[mb]]
            weights = torch.tensor(advantages[mb] / advantages.std() / len(chosen), dtype=torch.float32)
            (-weights * taken).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def main():
    """Train with options of the command line, and print the share of episodes won."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--start", default="", help="folder of the starting model; by default the embedded model")
    whole = {"iterations": 24, "levels": 8, "draws": 4, "max_episode_steps": 16, "seed": 0, "test_levels": 100}
    for name, default in whole.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=5e-6)
    parser.add_argument("--bf16", action="store_true", help="a third of the time on a CPU with AVX512-BF16; weights stay float32")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    folder, dtype = args.start or smollm2_folder(), torch.bfloat16 if args.bf16 else torch.float32
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
    goto = functools.partial(gym.make, "BabyAIText-v0", task="goto", expert="off", max_episode_steps=args.max_episode_steps)

    def tested():
        return won(play(model, tokenizer, functools.partial(goto, fold="test"), range(args.test_levels), dtype=dtype))

    before = tested()
    options = {name: getattr(args, name) for name in ("iterations", "levels", "draws", "learning_rate")}
    shares = train(model.eval(), tokenizer, functools.partial(goto, fold="train"), dtype=dtype, **options)
    for iteration, share in enumerate(shares):
        print(f"iteration {iteration}: {share:.2f} won", flush=True)
    print(f"{args.test_levels} levels of the test fold: {before:.2f} won before, {tested():.2f} after")


if __name__ == "__main__":
    main()
