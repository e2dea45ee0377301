"""TensorZero: functions and variants behind a gateway that records episodes and their feedback."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

from gym_text.errors import UsageError, import_extra
from gym_text_policies.backends.base import Answer, Request
from gym_text_policies.backends.provider_table import PROVIDERS
from gym_text_policies.backends.providers.answer_checks import count
from gym_text_policies.backends.providers.chat_answers import finish_of, with_thought
from gym_text_policies.backends.providers.chat_messages import effort_of, refuse_settings, with_field
from gym_text_policies.backends.providers.connection import CallError
from gym_text_policies.backends.providers.keys import client_key
from gym_text_policies.backends.providers.options import check_name
from gym_text_policies.backends.providers.remote import RemoteBackend
from gym_text_policies.records import Episode


class TensorZeroBackend(RemoteBackend):
    """A function of TensorZero, through a gateway in this process or elsewhere.

    The requests of one episode are inferences of one TensorZero episode, whose id is the `reference` of each answer. Call
    `feedback` with each finished episode: it reports two metrics, ``episode_return`` (the return) and ``progression`` (the last
    score). The gateway's configuration must define both as floats of level episode.

    Args:
        model: ``FUNCTION`` (the gateway chooses the variant) or ``FUNCTION::VARIANT``.
        config_file: Configuration of a gateway in this process.
        base_url: Address of a running gateway, in place of `config_file`.
        key_variable: Name of the environment variable with the running gateway's key, if it needs one; None sends none.
        shared: See `RemoteOptions`; prices are by `model`. The gateway does not know of answers from the cache.
    """

    provider = "tensorzero"
    most_choices = 0
    hides_thoughts = True

    def __init__(
        self,
        model: str,
        *,
        config_file: str | None = None,
        base_url: str | None = None,
        key_variable: str | None = PROVIDERS["tensorzero"].key_variable,
        **shared: Any,
    ) -> None:
        super().__init__(model, base_url, key_variable, **shared)
        config_file = check_name("config_file", config_file)
        if (config_file is None) == (base_url is None):
            raise UsageError("tensorzero: expected config_file, or base_url of a running gateway; got both or neither.")
        self._function, _, variant = model.partition("::")
        self._variant = variant or None
        os.environ.setdefault("RUST_LOG", "off")  # read at import; else the client writes to standard output
        self._tensorzero: Any = import_extra("tensorzero", "tensorzero")
        if config_file is None:
            self._config_hash = None
            settings = {"timeout": self._options.timeout, "api_key": client_key(self.provider, key_variable)}
            self._client = self._tensorzero.TensorZeroGateway.build_http(gateway_url=base_url, **settings)
        else:
            self._client = self._embedded(Path(config_file))
            self._config_hash = hashlib.sha256(Path(config_file).read_bytes()).hexdigest()[:16]
        self._episodes: dict[str, str] = {}  # TensorZero's ids

    def _embedded(self, path: Path) -> Any:
        if not path.is_file():
            raise UsageError(f"config_file: expected a TensorZero configuration; there is no file {str(path)!r}.")
        try:
            return self._tensorzero.TensorZeroGateway.build_embedded(config_file=str(path), timeout=self._options.timeout)
        except self._tensorzero.TensorZeroInternalError as error:
            raise UsageError(f"config_file: expected a TensorZero configuration; {error}") from None

    @property
    def config(self) -> dict[str, Any]:
        """Function, variant, and the gateway's address or a hash of its configuration."""
        return super().config | ({"config": self._config_hash} if self._config_hash else {})

    def feedback(self, episode: Episode) -> None:
        """Report the return and the last score of a finished episode.

        Args:
            episode: An episode that this backend played, as `rollout` yields it.

        Raises:
            UsageError: If the episode's record has no TensorZero id.
            PolicyError: If the gateway refuses the feedback, as a gateway without observability does.
        """
        name = next((step.decision.reference for step in episode.steps if step.decision.reference), None)
        if name is None:
            raise UsageError("feedback: expected an episode that this backend played; got one without a TensorZero episode id.")
        for metric, value in (("episode_return", episode.total_reward), ("progression", episode.steps[-1].score)):
            try:
                self.retrying()(self._report, metric, value, name)
            except CallError as error:
                raise self.failure(error) from None

    def _report(self, metric: str, value: float, name: str) -> None:
        with self._failures():
            self._client.feedback(metric_name=metric, value=value, episode_id=name)

    def _ask(self, request: Request) -> Answer:
        refuse_settings("tensorzero", request, ("top_k", "min_p", "tool"))
        system = "\n\n".join(message["content"] for message in request.messages if message["role"] == "system")
        chat = with_field([message for message in request.messages if message["role"] != "system"], None)
        params: dict[str, Any] = {"temperature": request.temperature, "max_tokens": request.most_tokens, "seed": request.seed}
        params |= {"top_p": request.top_p, "reasoning_effort": effort_of(request.think)}
        response = self._client.inference(
            function_name=self._function,
            variant_name=self._variant,
            episode_id=self._episodes.get(request.episode),
            input={"messages": chat} | ({"system": system} if system else {}),
            params={"chat_completion": {name: value for name, value in params.items() if value is not None}},
            output_schema=None if request.schema is None else dict(request.schema),
        )
        reference = str(response.episode_id)
        if request.episode:
            self._episodes[request.episode] = reference
        if hasattr(response, "output"):  # a function of type json
            text = response.output.raw
            thought = ""
        else:
            text = "".join(block.text for block in response.content if block.type == "text")
            thought = "\n".join(block.text or "" for block in response.content if block.type == "thought").strip()
        usage = response.usage
        answer = Answer(
            text or "",
            finish=finish_of(response.finish_reason and response.finish_reason.value),
            tokens_in=count(usage.input_tokens),
            tokens_cached=count(usage.provider_cache_read_input_tokens),
            tokens_out=count(usage.output_tokens),
            cost=usage.cost or 0.0,
            reference=reference,
        )
        return with_thought(answer, thought)

    def _call_error(self, error: Exception) -> CallError | None:
        if isinstance(error, self._tensorzero.TensorZeroError):
            return CallError.of_status(error.status_code, error.text or "")
        if isinstance(error, self._tensorzero.TensorZeroInternalError):
            return CallError(str(error), retry=True, billed=True)
        return None
