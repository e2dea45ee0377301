"""The package's client, OpenEnv's generic one: ``GenericEnvClient(base_url=…)`` plays over the network."""

from openenv.core import GenericEnvClient

__all__ = ["GenericEnvClient"]
