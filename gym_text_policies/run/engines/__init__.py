"""Where episodes are played: in this process, or spread over a Ray cluster. Both play the same `rollout`."""
