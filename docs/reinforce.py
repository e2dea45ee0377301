"""REINFORCE in plain torch: a language model plays BabyAI's goto by drawing, and learns from its own returns.

python docs/reinforce.py --model MODEL_FOLDER --iterations 20
"""

import argparse
import functools

import gymnasium as gym
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM, AutoTokenizer

import gym_text  # noqa: F401  registers the environments
from gym_text_policies import LLMPolicy, rollout
from gym_text_policies.backends.local.smollm2 import smollm2_folder
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.training.arrays import decisions_of


def scores(model, prompt, candidates, end):
    """Return log P(candidate | prompt) of each candidate, of shape (candidates,), with gradients; the prompt is read once."""
    read = model(torch.from_numpy(prompt)[None], use_cache=True, logits_to_keep=1)
    read.past_key_values.batch_repeat_interleave(len(candidates))
    rows = pad_sequence([torch.from_numpy(candidate) for candidate in candidates], batch_first=True, padding_value=end)
    later = model(rows[:, :-1], past_key_values=read.past_key_values).logits
    log_probs = torch.cat([read.logits.expand(len(rows), -1, -1), later], dim=1).log_softmax(-1)
    return torch.stack([log_probs[i, range(len(c)), torch.from_numpy(c)].sum() for i, c in enumerate(candidates)])


def train(model, tokenizer, make_env, *, iterations, episodes, learning_rate, most_decisions=128):
    """Learn, and yield the share of episodes that was won in each iteration, before it is learnt from."""
    optimizer, spec = torch.optim.AdamW(model.parameters(), lr=learning_rate), make_env().get_wrapper_attr("text_spec")
    for iteration in range(iterations):
        backend = TransformersBackend(model, tokenizer, "learner")  # a new one: what was read was read by other weights
        policy = LLMPolicy(backend, spec, strategy="chat", history=0, mode="choose", temperature=1.0, seed=iteration)
        played = list(rollout(make_env, policy, range(iteration * episodes, (iteration + 1) * episodes)))
        yield sum(episode.outcome == "won" for episode in played) / episodes
        d = decisions_of(played, tokenizer)
        advantages = (d.returns - d.returns.mean()) / (d.returns.std() + 1e-6)
        chosen = torch.randperm(len(d))[:most_decisions]
        for i in chosen.tolist():
            log_probs = scores(model, d.prompts[i], d.candidates[i], tokenizer.eos_token_id).log_softmax(0)
            (-advantages[i] * log_probs[d.actions[i]] / len(chosen)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def main():
    """Train with options of the command line, and print the share of episodes won."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="folder of a model; by default the embedded one")
    for name, default in {"iterations": 20, "episodes": 32, "max_episode_steps": 16, "seed": 0}.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    parser.add_argument("--learning-rate", type=float, default=1e-5)
    options = vars(parser.parse_args())
    torch.manual_seed(options.pop("seed"))
    folder, steps = options.pop("model") or smollm2_folder(), options.pop("max_episode_steps")
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)
    make_env = functools.partial(gym.make, "BabyAIText-v0", task="goto", fold="train", expert="off", max_episode_steps=steps)
    for iteration, won in enumerate(train(model.eval(), tokenizer, make_env, **options)):
        print(f"iteration {iteration}: {won:.2f} won", flush=True)


if __name__ == "__main__":
    main()
