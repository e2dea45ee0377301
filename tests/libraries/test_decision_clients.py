"""`gym-text serve --model`, asked by clients of decision models: typesafe-sdk's, and pydantic-ai's agents."""

from typing import Literal

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.system_one import SystemOneModel
from pydantic_ai.providers.system_one import SystemOneProvider
from typesafe_sdk import Choice, Noul, RetryPolicy, Score, TypeSafeClient, TypeSafeNotFoundError, TypeSafeUnprocessableEntityError

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.load import load_backend
from gym_text_policies.bridges.decisions import create_app
from gym_text_policies.bridges.serving import serving

STATE = "You see a red ball and a locked door."


@pytest.fixture(scope="module")
def model(tiny_model):
    return load_backend(tiny_model)


@pytest.fixture(scope="module")
def url(model):
    with serving(create_app(model, "tiny")) as address:
        yield address


def test_typesafes_client_gets_exact_probabilities_and_its_own_errors(url, model):
    choice = Choice(instructions="What next?", criteria={"left": "turn left", "go": None})
    with TypeSafeClient(api_key="none", base_url=url, model="tiny", retry=RetryPolicy(max_retries=0), compression=False) as client:
        questions = {"next": choice, "open": Noul(instructions="Is it open?"), "far": Score(criteria=["near", "far"])}
        result = client.system_one(state=STATE, questions=questions)
        assert [each.name for each in client.models.list().models] == ["tiny"]
        with pytest.raises(TypeSafeNotFoundError, match="'tiny' is"):
            client.system_one(state=STATE, questions=questions, model="jev-latest")
        with pytest.raises(TypeSafeUnprocessableEntityError, match="at least 2 items"):
            client.system_one(state=STATE, questions={"next": Choice(criteria={"one": None})})
    asked = Request(({"role": "user", "content": f"{STATE}\n\nWhat next?"},), ("turn left", "go"))
    expected = list(model.answer([asked])[0].probabilities.values())
    assert list(result.choices["next"].probabilities.values()) == pytest.approx(expected, rel=1e-4)
    assert 0 < result.nouls["open"].noul < 1 and sum(result.scores["far"].probabilities.values()) == pytest.approx(1)
    assert result.usage.output_tokens == 0


def test_pydantic_ais_agent_decides(url):
    decider = SystemOneModel("tiny", provider=SystemOneProvider(base_url=url))
    result = Agent(decider, output_type=Literal["turn left", "go forward"], instructions="Which action comes next?").run_sync(STATE)
    assert result.output in ("turn left", "go forward")
    assert result.usage.input_tokens > 0
