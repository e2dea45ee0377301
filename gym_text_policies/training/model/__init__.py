"""The model in training: its adapter, what it reads, actor and critic, checkpoints, and the processes that train it together."""
