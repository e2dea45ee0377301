"""From logits to answers: drafts of what comes next change no answer and save passes."""

import json

import pytest

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.decoding import PromptLookup
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


def test_a_draft_is_what_followed_last_time():
    lookup = PromptLookup([1, 2, 3, 4, 1, 2, 5, 9, 9, 1, 2])
    assert lookup.draft(2) == [5, 9] and lookup.draft(1) == [5]
    assert lookup.draft(0) == []
    lookup.extend([3])
    assert lookup.draft(2) == [4, 1], "a match of three tokens counts for more than one of one"
    lookup.extend([7])
    assert lookup.draft(3) == [], "7 never occurred before"
    assert PromptLookup([5, 6, 5, 6, 5]).draft(5) == [6, 5, 6, 5, 6], "a line that repeats goes on repeating"
    assert PromptLookup([]).draft(3) == [] and PromptLookup([1]).draft(3) == []


def test_what_was_answered_to_other_prompts_is_drafted_first():
    earlier = PromptLookup()
    earlier.remember([8, 8, 1, 2, 3], [4, 5, 0])
    assert PromptLookup([1, 2, 3, 9, 1, 2, 3], earlier).draft(3) == [4, 5, 0]
    assert PromptLookup([1, 2, 3, 9, 6, 2, 3], earlier).draft(3) == [4, 5, 0], "a run of two tokens"
    assert PromptLookup([7, 2, 3, 9, 7, 2, 3], earlier).draft(1) == [9], "a longer run counts for more"
    assert PromptLookup([7, 2, 3, 9, 7, 2, 3]).draft(1) == [9]
    for _ in range(5000):
        earlier.remember([1, 2, 3], [4, 5, 6, 0])
    assert len(earlier) < 20_020 and PromptLookup([1, 2, 3], earlier).draft(2) == [4, 5]
