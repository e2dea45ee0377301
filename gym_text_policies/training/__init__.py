"""Language models trained to play: episodes into data, supervised fine-tuning, DAgger, PPO, GRPO."""
