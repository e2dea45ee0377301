"""`gym-text serve`: an environment behind OpenEnv's server, for trainers that play over the wire, or a decision model."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym

from gym_text.errors import UsageError, check_choice, check_int, import_extra
from gym_text.folds import FOLDS
from gym_text_policies.backends.load import load_backend
from gym_text_policies.backends.typed_questions import WAYS, Decide
from gym_text_policies.bridges.serving import MOST_SESSIONS, listen, server_of
from gym_text_policies.environments import environment_maker, fold_arguments, has_folds, parse_environment

logger = logging.getLogger(__name__)
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class ServeConfig:
    """Serve an environment by OpenEnv's protocol, or a model as a decision model, until Ctrl-C.

    Each client plays its own game. The client is GenericEnvClient of openenv.core. There are no passwords:
    whoever reaches the port can play, but can do nothing else.

    A model answers POST /v1/systemone (ollama, typesafe-sdk) and /v1/decisions (openai), with a probability for every option.
    """

    environment: str = field(default="", metadata={"positional": True})
    """Id of the environment, with keyword arguments as in BabyAIText-v0?task=goto. gym-text envs lists the ids."""
    model: str = ""
    """In place of an environment: a model of this process, such as adapters/babyai-sft or smollm2."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the model, such as dtype=bfloat16."""
    decide: Decide = "exact"
    """How a model decides. exact: by the probability of the whole text of each option (its description, or else its name), none of
    which the prompt lists. listed: the options stand in the prompt in their order. labels: they have letters, and the letters'
    tokens are compared, for at most 62 options."""
    host: str = "127.0.0.1"
    """Address to listen at. By default only this machine reaches it. 0.0.0.0 listens at every address, as a container needs."""
    port: int = 8000
    """Port to listen at; 0 takes a free one."""
    max_sessions: int = MOST_SESSIONS
    """Most clients of an environment, or requests to a model, at the same time. Further ones are refused."""

    def __post_init__(self) -> None:
        if bool(self.environment) == bool(self.model):
            raise UsageError("environment: expected the id of an environment, or --model with a model; got both or neither.")
        check_choice("decide", self.decide, WAYS)
        check_int("port", self.port, 0, 65_535)
        check_int("max_sessions", self.max_sessions, 1, 10_000)


def run(config: ServeConfig) -> None:
    """Serve until Ctrl-C or SIGTERM.

    Raises:
        OSError: If the port is taken.
    """
    with listen(config.host, config.port) as listener:  # before OpenEnv, whose import takes seconds: a taken port raises at once
        app = model_app(config) if config.model else app_of(config.environment, max_sessions=config.max_sessions)
        url = f"http://{config.host}:{listener.getsockname()[1]}"
        logger.info("Serving %s to %d clients at most, at %s", config.model or config.environment, config.max_sessions, url)
        if config.host not in LOOPBACK:
            logger.warning("Other machines can ask too: there are no passwords. --host 127.0.0.1 is for this machine alone.")
        server_of(app).run(sockets=[listener])


def model_app(config: ServeConfig) -> Any:
    """Return the application that answers the questions of decision models by a model."""
    for module in ("uvicorn", "fastapi"):
        import_extra(module, "serve")
    model = load_backend(config.model, **config.options)
    from gym_text_policies.bridges.decisions import create_app

    return create_app(model, config.model, decide=config.decide, max_sessions=config.max_sessions)


def app_of(environment: str, *, max_sessions: int = MOST_SESSIONS) -> Any:
    """Return OpenEnv's application for an environment, with its folds as splits.

    The expert is off unless the name turns it on; no client sees its actions.
    """
    import_extra("openenv", "openenv")
    from gym_text_policies.bridges.openenv import create_app

    def make(split: str | None) -> gym.Env[Any, Any]:
        return environment_maker(environment, **fold_arguments(environment, split))()

    return create_app(make, splits=_splits(environment), max_sessions=max_sessions)


def _splits(environment: str) -> tuple[str, ...]:
    """Return the folds that can be chosen: the one in the name, or all, or none where the environment has none."""
    _, arguments = parse_environment(environment)
    if "fold" in arguments:
        return (str(arguments["fold"]),)
    return FOLDS if has_folds(environment) else ()
