"""Training of language models that play: supervised fine-tuning, DAgger, expert iteration, PPO and GRPO."""
