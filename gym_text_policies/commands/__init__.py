"""Commands of `gym-text` that are no module of their own elsewhere, and how options are made of config dataclasses."""
