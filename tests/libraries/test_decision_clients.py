"""`gym-text serve --model`, asked by clients of decision models: typesafe-sdk's, LiteLLM's, and pydantic-ai's agents."""

from typing import Literal

import litellm
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.providers.system_one import SystemOneProvider
from typesafe_sdk import Choice, Noul, RetryPolicy, Score, TypeSafeClient, TypeSafeNotFoundError, TypeSafeUnprocessableEntityError

from gym_text_policies.backends.base import Request

STATE = "You see a red ball and a locked door."


def test_typesafes_client_gets_exact_probabilities_and_its_own_errors(decision_url, decision_model):
    choice = Choice(instructions="What next?", criteria={"left": "turn left", "go": None})
    once = RetryPolicy(max_retries=0)
    with TypeSafeClient(api_key="none", base_url=decision_url, model="tiny", retry=once, compression=False) as client:
        questions = {"next": choice, "open": Noul(instructions="Is it open?"), "far": Score(criteria=["near", "far"])}
        result = client.system_one(state=STATE, questions=questions)
        assert [each.name for each in client.models.list().models] == ["tiny"]
        with pytest.raises(TypeSafeNotFoundError, match="'tiny' is"):
            client.system_one(state=STATE, questions=questions, model="jev-latest")
        with pytest.raises(TypeSafeUnprocessableEntityError, match="at least 2 items"):
            client.system_one(state=STATE, questions={"next": Choice(criteria={"one": None})})
    asked = Request(({"role": "user", "content": f"{STATE}\n\nWhat next?"},), ("turn left", "go"))
    expected = list(decision_model.answer([asked])[0].probabilities.values())
    assert list(result.choices["next"].probabilities.values()) == pytest.approx(expected, rel=1e-4)
    assert 0 < result.nouls["open"].noul < 1 and sum(result.scores["far"].probabilities.values()) == pytest.approx(1)
    assert result.usage.output_tokens == 0


def test_pydantic_ais_agent_decides(decision_url):
    decider = SystemOneModel("tiny", provider=SystemOneProvider(base_url=decision_url))
    result = Agent(decider, output_type=Literal["turn left", "go forward"], instructions="Which action comes next?").run_sync(STATE)
    assert result.output in ("turn left", "go forward")
    assert result.usage.input_tokens > 0


def test_litellm_asks_in_either_format(decision_url):
    noul = {"type": "noul", "instructions": "Is it open?"}
    first = litellm.systemone("hosted_vllm/tiny", state=STATE, questions={"open": noul}, api_base=decision_url)
    predicate = {"type": "predicate", "name": "open", "instructions": "Is it open?"}
    second = litellm.decisions("openai/tiny", input=STATE, questions=[predicate], api_base=f"{decision_url}/v1", api_key="none")
    assert first.answers["open"].noul == pytest.approx(second.answers[0].probability)
    assert first.usage.input_tokens == second.usage.input_tokens > 0
    with pytest.raises(litellm.NotFoundError, match="'tiny' is"):
        litellm.systemone("hosted_vllm/jev-latest", state=STATE, questions={"open": noul}, api_base=decision_url)
