"""From logits to answers: drafts of what comes next change no answer and save passes."""

import json

import pytest

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.transformers import TransformersBackend


@pytest.mark.parametrize("room", [0, 3, 7])
def test_drafts_change_no_answer(small_model, room, monkeypatch):
    network, tokenizer = small_model
    monkeypatch.setattr("gym_text_policies.backends.local.decoding._DRAFT_TOKENS", room)
    messages = ({"role": "user", "content": "A B C D A B C D A B"},)
    prompt = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_tensors="pt", return_dict=True)
    expected = network.generate(**prompt, max_new_tokens=30, do_sample=False, pad_token_id=2)[0, prompt["input_ids"].shape[1] :]
    backend = TransformersBackend(network, tokenizer, "m")
    answer = backend.answer([Request(messages, max_tokens=30)])[0]
    assert answer.text == tokenizer.decode(expected, skip_special_tokens=True) and answer.tokens_out == len(expected)


def test_what_a_schema_leaves_no_choice_about_is_read_in_few_passes(small_model, monkeypatch):
    network, tokenizer = small_model
    fields = {"action": {"type": "string", "enum": ["turn to the left hand side", "go forward"]}, "sure": {"enum": ["yes"]}}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    question = Request(({"role": "user", "content": "A red ball."},), schema=schema, max_tokens=60)

    def ask(room):
        monkeypatch.setattr("gym_text_policies.backends.local.decoding._DRAFT_TOKENS", room)
        backend, passes = TransformersBackend(network, tokenizer, "m"), []
        compute = backend._prefixes.compute
        monkeypatch.setattr(backend._prefixes, "compute", lambda branches: passes.append(1) or compute(branches))
        answer = backend.answer([question])[0]
        return answer.text, answer.tokens_out, len(passes)

    (one, tokens, single), (other, same, drafted) = ask(0), ask(7)
    assert one == other and json.loads(one)["sure"] == "yes" and tokens == same == single
    assert drafted <= single / 2
