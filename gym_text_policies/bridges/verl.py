"""An agent loop of verl 0.9: one episode of a level, for the rows of `gym_text_policies.bridges.levels`.

verl finds it by ``actor_rollout_ref.rollout.agent.agent_loop_config_path``, a YAML file::

    - name: gym_text
      _target_: gym_text_policies.bridges.verl.GymTextAgentLoop
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput
from verl.utils.profiler import simple_timer

from gym_text_policies.bridges.conversation import Conversation
from gym_text_policies.bridges.levels import game_of

_CUT = ("length", "abort", "aborted")
"""Reasons of verl's servers why an answer ended, by which it was cut."""


class GymTextAgentLoop(AgentLoopBase):  # type: ignore[misc, unused-ignore]
    """Plays a level: the model answers in words. `gym_text_policies.answers` has the rule for answers that are none.

    Args:
        imports: Modules whose environments a row may name beside those that ship; a line of the YAML file.
        settings: verl's own.
    """

    def __init__(self, *, imports: Iterable[str] = (), **settings: Any) -> None:
        super().__init__(**settings)
        self._imports = tuple(imports)

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        """Play an episode.

        It ends with the game, or when the response has as many tokens as ``rollout.response_length`` allows.

        Args:
            sampling_params: For verl's server.
            row: Columns of the level's row.
        """
        game, seed = game_of(row["extra_info"], imports=self._imports)
        try:
            await asyncio.to_thread(game.begin, seed)
            return await self._played(game, sampling_params)
        finally:
            await asyncio.to_thread(game.close)  # it waits for what is being played

    async def _played(self, game: Conversation, sampling_params: dict[str, Any]) -> AgentLoopOutput:
        most, request = self.rollout_config.response_length, uuid4().hex
        metrics: dict[str, Any] = {}
        messages = game.chat()
        tokens = await self.ct_build_initial_tokens(messages)
        mask: list[int] = []
        log_probs: list[float] | None = None
        answers = 0
        while True:
            with simple_timer("generate_sequences", metrics):
                output = await self.server_manager.generate(request_id=request, prompt_ids=tokens, sampling_params=sampling_params)
            answers += 1
            earlier = ([] if not mask else log_probs) if output.log_probs else None
            merged, mask, log_probs = await self.ct_merge_assistant_token(
                tokens, output.token_ids, mask, earlier, assistant_logprobs=output.log_probs or None
            )
            tokens = merged.token_ids
            if len(mask) >= most:
                break
            said = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
            text = await asyncio.to_thread(game.play, said, finish="length" if output.stop_reason in _CUT else None)
            if game.end is not None:
                break
            before = [*messages, {"role": "assistant", "content": said}]
            messages = [*before, {"role": "user", "content": text}]
            merged, after, after_log_probs = await self.ct_merge_context_msg(before, messages, tokens, mask, log_probs)
            if len(after) >= most:
                break
            tokens, mask, log_probs = merged.token_ids, after, after_log_probs
        first = len(tokens) - len(mask)
        metrics["num_preempted"] = -1
        return AgentLoopOutput(
            prompt_ids=tokens[:first],
            response_ids=tokens[first:][:most],
            response_mask=mask[:most],
            response_logprobs=log_probs[:most] if log_probs else None,
            reward_score=game.score,
            num_turns=2 * answers,
            metrics=metrics,
            extra_fields={**output.extra_fields, "turn_scores": [], "tool_rewards": [], "reward_extra_info": game.metrics},
        )
