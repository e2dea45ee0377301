"""The model in training: its adapter, what it reads, actor and critic, and checkpoints."""
