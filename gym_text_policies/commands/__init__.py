"""The commands `gym-text envs` and `gym-text play`, and `options`, which makes options of config dataclasses."""
