"""A thought is told from the answer behind it, and no action is taken from a thought."""

import json
import random

import pytest

from gym_text.babyai.env import BABYAI_SPEC
from gym_text.textworld_express.house_games import CookingWorldEnv
from gym_text_policies.backends.base import Answer
from gym_text_policies.backends.thoughts import split_thought, thought_apart
from gym_text_policies.policies.parsing import parse_action, parse_fields, read_answer

CHANNEL = "<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"
CALL = "commentary to=functions.act <|constrain|>json<|message|>"
MARKERS = [
    *(("<think>", "</think>"), ("<think>\n", "\n</think>\n\n"), ("<THINK>", "</THINK>"), ("< think >", "</ think >")),
    *(
        ("<thinking>", "</thinking>"),
        ("<thought>", "</thought>"),
        ("<reasoning>", "</reasoning>"),
        ("<seed:think>", "</seed:think>"),
    ),
    *(('<think duration="3">', "</think>"), ("[THINK]", "[/THINK]"), ("◁think▷", "◁/think▷"), CHANNEL),
    *((CHANNEL[0], f"<|start|>assistant<|channel|>{header}") for header in (CALL, "final <|constrain|>json<|message|>")),
    *(("<|channel>thought\n", "<channel|>"), ("<|START_THINKING|>", "<|END_THINKING|>")),
]
"""What opens and what closes a thought."""
THOUGHT_OF = ("turn right", "go forward", "pick up", "drop")
"""Actions that only the thoughts name."""
ANSWERED = ("turn left", "toggle")
"""Actions that only the answers name."""
TALK = (
    "the goal lies to my left , so I go there ; вероятно дверь закрыта и я думаю 墙 在 左边 所以 我 要 思考 la porte est fermée "
    'donc weil links eine Wand ist überlege ich 目標は 右側 لذلك أفكر < 3 > 2 {x} "quoted" [note] a / b'
)
WORDS = TALK.split()


def thought(rng):
    """Return words in several languages, names of actions among them, as words and as JSON."""
    parts = [" ".join(rng.choices(WORDS, k=rng.randint(0, 12)))]
    for action in rng.choices(THOUGHT_OF, k=rng.randint(1, 3)):
        said = (
            action,
            action.upper(),
            f"**{action}**",
            f"I will {action}",
            json.dumps({"action": action}),
            f'{{"action": "{action}',
        )
        parts += [rng.choice(said), " ".join(rng.choices(WORDS, k=rng.randint(0, 6)))]
    return rng.choice((" ", "\n", "\n\n")).join(parts)


def answer(rng):
    """Return an answer, and the action that it names."""
    action = rng.choice(ANSWERED)
    objects = json.dumps({"reflection": "Nothing.", "action": action})
    return rng.choice((action, f"I {action}.", f"\n**{action.title()}**\n", objects, f"```json\n{objects}\n```")), action


def closed(rng):
    opening, closing = rng.choice(MARKERS)
    text, action = answer(rng)
    return f"{opening}{thought(rng)}{closing}{text}", action


def unclosed(rng):
    opening, closing = rng.choice(MARKERS)
    before = rng.choice(("", "", f"{closing}{opening}", answer(rng)[0]))
    return before + opening + thought(rng) + closing[: rng.randrange(min(3, len(closing.strip())))].strip("\n"), None


def nested(rng):
    (opening, closing), (inner, end) = (rng.choice(MARKERS[:10]) for _ in range(2))
    quoted = f"{opening}{thought(rng)}{inner}{thought(rng)}{end}{thought(rng)}"
    text, action = answer(rng)
    return rng.choice(((f"{quoted}{closing}{text}", action), (quoted, None)))


def leaked(rng):
    _, closing = rng.choice(MARKERS)
    text, action = answer(rng)
    return thought(rng) + closing + text, action


def several(rng):
    texts = [closed(rng) for _ in range(rng.randint(2, 4))]
    return "".join(text for text, _ in texts), texts[-1][1]


def without_an_answer(rng):
    opening, closing = rng.choice(MARKERS)
    return opening + thought(rng) + closing + rng.choice(("", "\n", "Done.", "turn left or toggle")), None


def without_markers(rng):
    text, action = answer(rng)
    words = thought(rng)
    cut = f"analysisNow {words}"
    return rng.choice(((f"{cut}assistantfinal{text}", action), (cut, None)))


@pytest.mark.parametrize("kind", [closed, unclosed, nested, leaked, several, without_an_answer, without_markers])
def test_no_action_is_taken_from_a_thought(kind):
    rng = random.Random(46)
    for _ in range(150):
        text, action = kind(rng)
        assert read_answer(text, BABYAI_SPEC, {})[0] == action, text
        assert parse_action(text, BABYAI_SPEC, {}) == action, text
        assert (parse_fields(text) or {}).get("action") in (action, None), text
        assert parse_action(text, BABYAI_SPEC, {}, finish="length") in (action, None), text


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>\nA wall.\n</think>\n\ngo forward", "A wall.", "go forward"),
        ("A wall.</think>go forward", "A wall.", "go forward"),
        ("<think></think>go forward", None, "go forward"),
        ("<think>a<think>b</think>c</think>go", "a\nb\nc", "go"),
        ("<think>a</think>go<think>b</think>stay", "a\ngo\nb", "stay"),
        ("<think>the end </reasoning> is quoted</think>go", "the end </reasoning> is quoted", "go"),
        ("<think>a <reasoning> is quoted</think>go", "a\nis quoted", "go"),
        (f"{CHANNEL[0]}A wall.{CHANNEL[1]}go<|return|>", "A wall.", "go"),
        ("<|channel|>final<|message|>go", None, "go"),
        (f"{CHANNEL[0]}A wall.<|end|><|channel|>final <|constrain|>json<|message|>{{}}", "A wall.", "{}"),
        (f"{CHANNEL[0]}A wall.<|end|><|start|>assistant<|channel|>{CALL}go<|call|>", "A wall.", "go"),
        (f"{CHANNEL[0]}a<|end|><|start|>assistant to=functions.act<|channel|>commentary json<|message|>go<|call|>", "a", "go"),
        ("analysisA wall.assistantfinalgo", "A wall.", "go"),
    ],
)
def test_a_text_is_split_behind_its_last_thought(text, thought, answer):
    assert split_thought(text) == (thought, answer, True)


@pytest.mark.parametrize(
    "text",
    [
        *("<think>go", "<think>a<think>b</think>go", "<think>a</think>go<think>b", f"{CHANNEL[0]}go", "analysisGo"),
        f"{CHANNEL[0]}a<|end|><|start|>assistant<|channel|>commentary <|constrain|>json<|message|>go",
    ],
)
def test_a_thought_that_does_not_end_has_no_answer_behind_it(text):
    assert split_thought(text)[1:] == ("", False)


@pytest.mark.parametrize(
    "text",
    [
        "go forward",
        " go\n",
        "",
        "a < b > c",
        "[think]",
        "analysis of a <b>thing</b>",
        "think!",
        '{"reflection": "no </think>", "action": "go"}',
    ],
)
def test_a_text_without_a_thought_stays_as_it_is(text):
    assert split_thought(text) == (None, text, True)


def test_an_action_whose_name_looks_like_a_thought_is_that_action():
    valid = {"valid_actions": ("<think>", "say <thought> aloud", "wait")}
    for name in valid["valid_actions"]:
        assert parse_action(name, CookingWorldEnv.game_spec, valid) == name
    assert thought_apart(Answer("<think>"), valid["valid_actions"]).text == "<think>"


def test_the_thought_of_an_answer_is_counted_apart_and_one_that_does_not_end_is_cut():
    apart = thought_apart(Answer("<think>123</think>123456", finish="stop", tokens_out=12))
    assert (apart.text, apart.reasoning, apart.finish, apart.tokens_out, apart.tokens_reasoning) == ("123456", "123", "stop", 12, 9)
    cut = thought_apart(Answer("<think>1234", reasoning="before", finish=None, tokens_out=12, tokens_reasoning=5))
    assert (cut.text, cut.reasoning, cut.finish, cut.tokens_reasoning) == ("", "before\n1234", "length", 5)
    plain = Answer("go", tokens_out=3)
    assert thought_apart(plain) is plain and thought_apart(Answer()) == Answer()
