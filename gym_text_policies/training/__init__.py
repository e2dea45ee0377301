"""Training of language models that play: supervised fine-tuning, DAgger, PPO, GRPO and AggreVaTe."""
