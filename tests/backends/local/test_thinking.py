"""Thoughts of a model in this process: they end at their marker or at their budget, and answers stand behind them."""

import json

import pytest
import thinking_models as models
import torch

from gym_text_policies.backends.base import Request
from gym_text_policies.backends.chat_format import AnswerStart
from gym_text_policies.backends.local.cached import CachedPrefixes, RereadPrefixes
from gym_text_policies.backends.local.rendering import format_of
from gym_text_policies.backends.local.thinking import ThoughtMarkers
from gym_text_policies.backends.local.tokens import end_of_turn, text_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend

FORMS = tuple(models.TEMPLATES)
NAMES = ("turn left", "pick up", "go forward", "go")
WALL, BALL = models.THOUGHTS
SCHEMA = {
    "type": "object",
    "properties": {"action": {"type": "string", "enum": list(NAMES)}},
    "required": ["action"],
    "additionalProperties": False,
}
pytestmark = [pytest.mark.usefixtures("one_thread")]


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture(scope="module")
def random_models(tmp_path_factory):
    """Return a model of random weights for each form of template."""
    return {form: models.random_model(tmp_path_factory.mktemp(form), form) for form in FORMS}


def ask(model, *requests):
    return TransformersBackend(*model, "small").answer(requests)


def question(text=WALL, **options):
    return Request(models.chat(text), **{"max_tokens": 20, "tokens": True, **options})


def brute_force(model, before, names=NAMES):
    """Return the probability of each name behind tokens, from one plain forward pass for each."""
    network, tokenizer = model
    scores = []
    for name in names:
        answer = [*text_tokens(tokenizer, name), end_of_turn(tokenizer)]
        with torch.inference_mode():
            log_probs = network(torch.tensor([[*before, *answer]])).logits[0].double().log_softmax(-1)
        scores.append(sum(float(log_probs[len(before) + i - 1, token]) for i, token in enumerate(answer)))
    return dict(zip(names, torch.tensor(scores).softmax(0).tolist(), strict=True))


def first(answer):
    """Return the number of tokens between prompt and candidates."""
    said = [tokens.said for tokens in answer.tokens.values()]
    return next(n for n, column in enumerate(zip(*said, strict=False)) if len(set(column)) > 1)


@pytest.mark.parametrize(("text", "said"), models.THOUGHTS.items())
def test_a_text_stands_behind_the_thought_and_both_are_the_tokens_that_the_template_writes(form, text, said):
    model = models.taught(form)
    (answer,) = ask(model, question(text))
    assert (answer.reasoning, answer.text, answer.finish, answer.thought_cut) == (*said, "stop", False)
    tokens = answer.tokens[answer.text]
    assert list(tokens.prompt + tokens.said) == models.written(model[1], text, *said)
    assert answer.tokens_out == len(tokens.said) - len(tokens.written) == answer.tokens_reasoning + len(said[1].split()) + 1


def test_probabilities_are_those_of_names_behind_the_thought(form):
    model = models.taught(form)
    answers = ask(model, *(question(text, choices=NAMES) for text in models.THOUGHTS))
    for (text, (thought, action)), answer in zip(models.THOUGHTS.items(), answers, strict=True):
        whole = models.written(model[1], text, thought, action)
        before = whole[: len(whole) - len(text_tokens(model[1], action)) - 1]
        assert answer.reasoning == thought and max(answer.probabilities, key=answer.probabilities.get) == action
        assert answer.probabilities == pytest.approx(brute_force(model, before), abs=1e-4)


@pytest.mark.parametrize("temperature", [1.5])
def test_a_thought_at_its_budget_is_closed_and_names_are_scored_behind_it(form, random_models, temperature):
    model, close = random_models[form], ""
    options = {"temperature": temperature, "seed": 3, "think_tokens": 9} if temperature else {"think_tokens": 9}
    (answer,) = ask(model, question(choices=NAMES, **options))
    tokenizer = model[1]
    answer_start = format_of(tokenizer).answer_start()
    before = (*answer.tokens["go"].prompt, *answer.tokens["go"].said[: first(answer)])
    assert answer.probabilities == pytest.approx(brute_force(model, before), abs=1e-4)
    written = tokenizer.decode(before)
    if form == "switch":  # such a model does not begin with a thought, and so answers where answers without a thought stand
        assert answer.reasoning is None and written.endswith(answer_start.opening)
    else:
        close = answer_start.thought_close
        assert answer.thought_cut and answer.tokens_reasoning <= 9 and written.endswith(close)
        given = answer.tokens["go"].written
        assert tokenizer.decode([answer.tokens["go"].said[index] for index in given]) == close


@pytest.mark.parametrize("form", ["channels"])
def test_a_thought_of_no_tokens_is_written_in_the_prompt(form):
    model = models.taught(form)
    answer_start = format_of(model[1]).answer_start()
    (answer,) = ask(model, question(choices=NAMES, think_tokens=0))
    assert (answer.reasoning, answer.thought_cut, answer.tokens_out) == ("", True, 0)
    written = model[1].decode(answer.tokens["go"].prompt)
    assert written.endswith(f"{answer_start.thought_open}{answer_start.thought_close}") and answer.tokens["go"].written == ()
    assert answer.probabilities == pytest.approx(brute_force(model, answer.tokens["go"].prompt), abs=1e-4)


@pytest.mark.parametrize("form", ["channels"])
def test_json_begins_behind_the_thought(form):
    model = models.taught(form)
    cut, whole = ask(model, question(schema=SCHEMA, think_tokens=6, max_tokens=40), question(BALL, schema=SCHEMA, max_tokens=40))
    assert whole.reasoning == models.THOUGHTS[BALL][0] and not whole.thought_cut and cut.thought_cut
    assert all(set(json.loads(answer.text)) == {"action"} for answer in (cut, whole))


@pytest.mark.parametrize(("form", "options"), [("opened", {}), ("channels", {"temperature": 1.2})])
def test_thoughts_do_not_depend_on_the_other_requests_nor_on_what_was_read_before(form, random_models, options):
    for model in (models.taught(form), random_models[form]):
        seeds = range(4) if options else range(1)
        texts = (WALL, BALL, "A wall. A ball.", "Go.")
        requests = [
            question(text, seed=seed, think_tokens=30, **{**options, **more})
            for text in texts
            for seed in seeds
            for more in ({}, {"choices": NAMES}, {"schema": SCHEMA, "max_tokens": 40})
        ]
        warm = TransformersBackend(*model, "small")
        together, again = warm.answer(requests), warm.answer(requests[::-1])[::-1]
        assert [answer.reasoning for answer in again] == [answer.reasoning for answer in together]
        for request, answer in list(zip(requests, together, strict=True))[:: max(1, len(requests) // 8)]:
            (alone,) = ask(model, request)
            assert (alone.text, alone.reasoning, alone.finish) == (answer.text, answer.reasoning, answer.finish)
            assert alone.tokens_reasoning == answer.tokens_reasoning and alone.thought_cut == answer.thought_cut
            if request.choices:
                assert alone.probabilities == pytest.approx(answer.probabilities, abs=1e-4)
        if options:
            assert len({answer.reasoning for answer in together}) > len(texts) or form == "switch"


@pytest.mark.parametrize("prefixes", [CachedPrefixes, RereadPrefixes])
def test_other_ways_of_reading_give_the_same_thoughts(prefixes):
    model = models.taught("opened")
    requests = [question(text, **more) for text in models.THOUGHTS for more in ({}, {"choices": NAMES}, {"think_tokens": 4})]
    backend = TransformersBackend(*model, "small")
    backend._prefixes = prefixes(model[0], 1000)
    for expected, answer in zip(ask(model, *requests), backend.answer(requests), strict=True):
        assert (answer.text, answer.reasoning) == (expected.text, expected.reasoning)
        assert answer.probabilities is None or answer.probabilities == pytest.approx(expected.probabilities, abs=1e-4)


THINK = AnswerStart((), "<think>\n\n</think>\n\n", True, "<think>\n", "\n</think>\n\n")
BARE = AnswerStart((), "", True, "<think>", "</think>")
INSIDE = AnswerStart((), "\n</think>\n\n", True, "", "\n</think>\n\n")
CHANNELS = AnswerStart(
    *((), "<|channel|>final<|message|>", True, "<|channel|>analysis<|message|>"),
    "<|end|><|im_start|>assistant<|channel|>final<|message|>",
)
ENDS = [
    # what the model generates, where; the thought, what of it is kept, what closes it
    (THINK, "<think>\nA door.\n</think>", "A door.", "<think>\nA door.\n</think>", "\n\n", False),
    (THINK, "<think>A door.</think>\n", "A door.", "<think>A door.</think>", "\n\n", False),
    (THINK, "<think>\nA door.", "A door.", "<think>\nA door.", "\n</think>\n\n", True),
    (THINK, "<think>\nA door.\n", "A door.", "<think>\nA door.\n", "</think>\n\n", True),
    (THINK, "<think>\nA door.</thi", "A door.", "<think>\nA door.", "\n</think>\n\n", True),
    (THINK, "<think>\nA door.<|im_end|>", "A door.", "<think>\nA door.", "\n</think>\n\n", True),
    (THINK, "<think>\na <think> b</think> c</think>", "a <think> b", "<think>\na <think> b</think>", "\n\n", False),
    (THINK, "<thi", "", "", "<think>\n\n</think>\n\n", True),
    (THINK, "go forward", None, None, None, None),
    (THINK, "<|im_end|>", None, None, None, None),
    (BARE, "<think>A door.</think>go", "A door.", "<think>A door.</think>", "", False),
    (BARE, "go</think>", None, None, None, None),
    (INSIDE, "A door.\n</think>", "A door.", "A door.\n</think>", "\n\n", False),
    (INSIDE, "</think>", "", "</think>", "\n\n", False),
    (INSIDE, "go forward", "go forward", "go forward", "\n</think>\n\n", True),
    (CHANNELS, "<|channel|>final<|message|>go", None, None, None, None),
    (CHANNELS, f"<|channel|>analysis<|message|>A door.{CHANNELS.thought_close}", "A door.", None, "", False),
    (CHANNELS, f"<|channel|>comment<|message|>go left{CHANNELS.thought_close}", "commentgo left", None, "", False),
    (CHANNELS, "<|channel|>analysis<|message|>go<|return|>", "go", None, CHANNELS.thought_close, True),
]


@pytest.mark.parametrize("split", [False, True], ids=["markers are tokens", "markers are characters"])
@pytest.mark.parametrize(("answer_start", "text", "thought", "kept", "closing", "cut"), ENDS)
def test_where_a_thought_ends_and_what_closes_it(random_models, answer_start, text, thought, kept, closing, cut, split):
    tokenizer = random_models["channels" if answer_start is CHANNELS else "switch"][1]
    ends = {tokenizer.convert_tokens_to_ids(end) for end in ("<|im_end|>", "<|return|>")}
    markers = ThoughtMarkers(tokenizer, answer_start, ends)
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    if split and not ends & set(tokens):
        tokens = [token for character in text for token in text_tokens(tokenizer, character)]
    generated = []
    for token in tokens:
        generated.append(token)
        if markers.ends(generated):
            break
    found = markers.thought(generated)
    if thought is None:
        assert found is None
        return
    assert found.cut is cut and tokenizer.decode(found.closing) == closing
    assert kept is None or tokenizer.decode(found.tokens) == kept
    assert split or found.text == thought


@pytest.mark.parametrize(
    ("text", "answer", "ended"),
    [
        ("go forward", "go forward", True),
        ("<think>go</think>turn left", "turn left", True),
        ("go forward</think>turn left", "turn left", True),
        ("go forward<think>or turn left", "", False),
        ("</think>", "", True),
    ],
)
def test_another_thought_behind_the_first_is_no_answer(random_models, text, answer, ended):
    tokenizer = random_models["switch"][1]
    tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
    said = tokenizer.decode(tokens, skip_special_tokens=True)
    assert ThoughtMarkers(tokenizer, THINK, {2}).answer(tokens, said) == (answer, ended)
