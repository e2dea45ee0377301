"""What a chat template says of answers: where they begin, how they end, and how thoughts are written."""

import pytest
from small_models import save_tokenizer, small_llama
from transformers import AddedToken, AutoTokenizer

from gym_text import UsageError
from gym_text_policies.backends.base import Request
from gym_text_policies.backends.local.loading import load_transformers, load_when_asked
from gym_text_policies.backends.local.rendering import format_of, set_format
from gym_text_policies.backends.local.tokens import check_tokenizer, continued_tokens, end_of_turn, prompt_tokens, text_tokens
from gym_text_policies.backends.local.transformers import TransformersBackend
from gym_text_policies.data.rows import Example
from gym_text_policies.training.model.sequences import Conversation

ROLES = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
ASK = "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
GEMMA = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}{% for m in messages %}<start_of_turn>"
    "{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
SWITCH = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}<think>\n"
    "{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}{{ m.content }}<|end|>\n{% endfor %}"
    + ASK
    + "{% if add_generation_prompt and enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
REMOVES = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n<think>\n{% endif %}"
)
CHANNELS = (
    "Effort: {{ reasoning_effort | default('medium') }}{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}"
    "{% if m.thinking and loop.last %}<|channel|>analysis<|message|>{{ m.thinking }}<|end|><|start|>assistant{% endif %}"
    "<|channel|>final<|message|>{{ m.content }}{{ '<|return|>' if loop.last else '<|end|>' }}{% else %}<|message|>"
    "{{ m.content }}<|end|>{% endif %}{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
NEXT_ROLE = (
    "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}<think>{{ m.reasoning_content or '' }}</think>\n"
    "{% endif %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
PARTS = (
    "{% for m in messages %}{{ m.role | capitalize }}: {% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}"
    "{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
THINK, CLOSE = "<think>\n", "\n</think>\n\n"
FINAL = "<|channel|>final<|message|>"
FAMILIES = {
    # template: end of turn, opening, thought (what opens and closes it), whether past turns are as generated
    "plain": (ROLES + ASK, "<|end|>", "", None, True),
    "the end is not the eos": (GEMMA, "<end_of_turn>", "", None, True),
    "eos behind the end": (ROLES + "{{ '' if add_generation_prompt else eos_token }}" + ASK, "<|end|>", "", None, True),
    "switch": (SWITCH, "<|end|>", "", (THINK, CLOSE), False),
    "thoughts are removed": (REMOVES, "<|end|>", CLOSE, ("", CLOSE), False),
    "channels": (CHANNELS, "<|return|>", FINAL, ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant" + FINAL), False),
    "the next role ends a turn": (NEXT_ROLE, "<|user|>", "<think></think>\n", ("<think>", "</think>\n"), True),
    "parts": (PARTS, "<end_of_utterance>", " ", None, True),
}
"""Small templates with the traits of a family each."""
MARKERS = [
    *("<|start|>", "<|end|>", "<start_of_turn>", "<end_of_turn>", "<|channel|>", "<|message|>", "<|return|>", "<end_of_utterance>"),
    *("<|user|>", "<|assistant|>", "<|system|>"),
]
CHAT = (
    {"role": "system", "content": "Play."},
    {"role": "user", "content": "A wall."},
    {"role": "assistant", "content": "turn left"},
    {"role": "user", "content": "A door."},
)
CHOICES = ("go forward", "turn left", "toggle")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a small tokenizer that knows the markers."""
    folder = tmp_path_factory.mktemp("markers")
    save_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([AddedToken(marker, special=True, normalized=False) for marker in MARKERS])
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def with_template(folder):
    """Return a function that returns a tokenizer with a chat template."""

    def make(template):
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.mark.parametrize("family", FAMILIES)
def test_a_template_says_where_answers_begin_and_end_and_how_thoughts_are_written(family, with_template):
    template, end, opening, thought, kept = FAMILIES[family]
    tokenizer = with_template(template)
    check_tokenizer(tokenizer, "model:")
    chats = format_of(tokenizer)
    answer_start = chats.answer_start(False)
    assert (chats.end_marker, answer_start.opening, chats.continues(answer_start)) == (end, opening, kept)
    assert end_of_turn(tokenizer) == tokenizer.convert_tokens_to_ids(end) != tokenizer.eos_token_id
    assert not answer_start.thinks and chats.answer_start().thinks == (thought is not None)
    if thought:
        thinking = chats.answer_start(True)
        assert (thinking.thought_open, thinking.thought_close) == thought
    else:
        for think in (True, "low"):
            with pytest.raises(UsageError, match=f"think={think!r}: expected a model whose chat template has thoughts"):
                chats.answer_start(think)


def test_thoughts_are_switched_by_the_templates_own_arguments(with_template):
    tokenizers = [with_template(template) for template in (SWITCH, CHANNELS)]
    switch, channels = map(format_of, tokenizers)
    assert (switch.switch, channels.switch, switch.has_effort, channels.has_effort) == ("enable_thinking", None, False, True)
    assert switch.answer_start(False).arguments == (("enable_thinking", False),)
    assert channels.answer_start("low").arguments == (("reasoning_effort", "low"),)
    with pytest.raises(UsageError, match="knows no effort, as in 'low'"):
        switch.answer_start("low")


@pytest.mark.parametrize("family", FAMILIES)
def test_probabilities_are_those_of_a_plain_pass_from_the_templates_place_to_its_end(family, with_template):
    import torch

    tokenizer = with_template(FAMILIES[family][0])
    model = small_llama(len(tokenizer), initializer_range=0.08, max_position_embeddings=2048).eval()
    backend = TransformersBackend(model, tokenizer, "small")
    found = backend.answer([Request(CHAT, CHOICES, think=False)])[0].probabilities
    chats, scores = format_of(tokenizer), []
    answer_start = chats.answer_start(False)
    prefix = chats.render(CHAT, True, dict(answer_start.arguments)) + FAMILIES[family][2]
    for choice in CHOICES:
        answered = [*CHAT, {"role": "assistant", "content": choice}]
        later = chats.render([*answered, CHAT[1]], False, dict(answer_start.arguments))
        last = chats.render(answered, False, dict(answer_start.arguments))
        assert family == "thoughts are removed" or (prefix + choice + FAMILIES[family][1]) in (last + later)
        said = [*text_tokens(tokenizer, choice), tokenizer.convert_tokens_to_ids(FAMILIES[family][1])]
        prompt = prompt_tokens(tokenizer, CHAT, answer_start)
        assert tokenizer.decode(prompt) == prefix
        with torch.no_grad():
            log_probs = model(input_ids=torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        scores.append(log_probs.gather(1, torch.tensor(said)[:, None]).sum())
    expected = torch.stack(scores).softmax(0).tolist()
    assert [found[choice] for choice in CHOICES] == pytest.approx(expected, abs=1e-4)


def test_a_turn_is_continued_as_generated_only_where_later_prompts_contain_it(with_template):
    said = [5, 6, 7]
    for family, (template, end, _, _, kept) in FAMILIES.items():
        tokenizer = with_template(template)
        answer_start = format_of(tokenizer).answer_start(False)
        before = prompt_tokens(tokenizer, CHAT[:2], answer_start)
        tokens = continued_tokens(tokenizer, [*before, *said], CHAT, answer_start)
        whole = prompt_tokens(tokenizer, CHAT, answer_start)
        if kept:
            size = whole[::-1].index(tokenizer.convert_tokens_to_ids(end)) + 1  # the last end is that of the last question
            assert tokens[: len(before) + 3] == [*before, *said] and tokens[-size:] == whole[-size:], family
            assert tokens[len(before) + 3] == tokenizer.convert_tokens_to_ids(end), "the turn is ended"
        else:
            assert tokens == whole, family


def test_gemmas_end_of_turn_ends_texts_and_is_what_sft_teaches(with_template):
    import torch

    tokenizer = with_template(GEMMA)
    model = small_llama(len(tokenizer), initializer_range=0.08, max_position_embeddings=2048).eval()
    end, prompt = tokenizer.convert_tokens_to_ids("<end_of_turn>"), prompt_tokens(tokenizer, CHAT)
    assert "Play." in tokenizer.decode(prompt), "without a role for it the system message begins the first question"
    with torch.no_grad():  # the model ends its turn at once
        state = model.model(input_ids=torch.tensor([prompt])).last_hidden_state[0, -1]
        model.lm_head.weight[end] = 50 * state / state.norm()
    answer = TransformersBackend(model, tokenizer, "ends").answer([Request(CHAT, max_tokens=9)])[0]
    assert (answer.text, answer.finish, answer.tokens_out) == ("", "stop", 1)
    decision = Conversation.of(tokenizer, [Example(CHAT, "go forward")]).decisions[0]
    assert [token for _, token in decision.answers[0]] == [*text_tokens(tokenizer, "go forward"), end]


def test_past_thoughts_stand_in_prompts_if_an_argument_of_the_template_keeps_them(with_template):
    keeps = SWITCH.replace("and loop.last", "and (loop.last or preserve_thinking | default(false))")
    tokenizer, thought = with_template(keeps), {**CHAT[2], "reasoning": "Left is free."}
    answer_start = format_of(tokenizer).answer_start(True)
    written = [tokenizer.decode(prompt_tokens(tokenizer, [*CHAT[:2], past, CHAT[3]], answer_start)) for past in (CHAT[2], thought)]
    assert f"{THINK}Left is free.{CLOSE}turn left<|end|>" in written[1] and "<think>" not in written[0]
    assert format_of(tokenizer).continues(answer_start, thought=True) and not format_of(tokenizer).continues(answer_start)
    set_format(tokenizer, {"preserve_thinking": False})
    answer_start = format_of(tokenizer).answer_start(True)
    dropped = prompt_tokens(tokenizer, [*CHAT[:2], thought, CHAT[3]], answer_start)
    assert tokenizer.decode(dropped) == written[0], "the user's argument counts"


def test_a_generation_prompt_that_opens_what_nothing_closes_is_refused(with_template):
    opened = ROLES + "{% if add_generation_prompt %}<|start|>assistant\n<think>\n{% endif %}"
    with pytest.raises(UsageError, match=r"model: expected a chat template whose .*ends with '<think>\\n'. Take the model's own"):
        check_tokenizer(with_template(opened), "model:")


def test_the_user_says_what_ends_a_turn_where_the_template_does_not(with_template):
    words = with_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    with pytest.raises(UsageError, match="Set end_of_turn"):
        check_tokenizer(words, "model:")
    set_format(words, {}, "<|end|>")
    check_tokenizer(words, "model:")
    assert end_of_turn(words) == words.convert_tokens_to_ids("<|end|>")
    set_format(words, {}, "<|end|> words")
    with pytest.raises(UsageError, match=r"end_of_turn: expected the text of one token; '<\|end\|> words' is"):
        check_tokenizer(words, "model:")


def test_settings_of_chats_are_options_and_part_of_the_identity(folder, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = SWITCH
    tokenizer.save_pretrained(tmp_path)
    small_llama(len(tokenizer)).save_pretrained(tmp_path)
    name, monkeyed = str(tmp_path), {"template_kwargs": {"enable_thinking": False}}
    quiet = load_transformers(name, **monkeyed)
    assert quiet.config["template_kwargs"] == monkeyed["template_kwargs"] != load_when_asked(name).config.get("template_kwargs")
    assert quiet.answer([Request(CHAT, CHOICES)])[0].tokens_reasoning == 0, "template_kwargs say how the model is asked"
    assert load_when_asked(name, end_of_turn="<|return|>").config["end_of_turn"] == "<|return|>"
    with pytest.raises(UsageError, match="template_kwargs: expected arguments that the chat template names; got 'enable_thoughts'"):
        load_transformers(name, template_kwargs={"enable_thoughts": True})
