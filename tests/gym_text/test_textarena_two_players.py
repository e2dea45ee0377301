"""TextArena's games for two: who plays the other side, and what a policy does where no moves are listed."""

import importlib
import re
import shutil

import pytest

from gym_text import UsageError
from gym_text.copies import fork
from gym_text_policies import Decision, LLMPolicy, Policy, ScriptedBackend, load_policy, rollout
from gym_text_policies.commands.play import Person
from gym_text_policies.data.collect import CollectConfig, plan_of
from gym_text_policies.environments import environment_maker, make_environment
from gym_text_policies.policies.mixed import MixedPolicy
from gym_text_policies.policies.user_policies import as_policy
from gym_text_policies.policy import environment_config
from gym_text_policies.run.bench import BenchConfig, run

TWO = "TextArenaTwoPlayers-v0"
TALK = f"{TWO}?game=SimpleNegotiation-v0&opponent=scripted:[Deny]"


def replies(env, seed, actions):
    """Return the words of each step."""
    env.reset(seed=seed)
    return [env.step(action)[0]["text"] for action in actions]


# ---------------------------------------------------------------- sides and scores


def test_the_seed_or_the_user_decides_the_side(make):
    for seed, player, side in ((4, None, 0), (5, None, 1), (4, 1, 1), (5, 0, 0)):
        obs, _ = make(TWO, player=player).reset(seed=seed)
        assert obs["goal"].startswith(f"You are Player {side} in Tic Tac Toe.")
        assert len(obs["valid_actions"]) == 9 - side, "where the opponent is first, it has moved"


@pytest.mark.parametrize(
    ("mine", "theirs", "reward", "success", "failure"),
    [
        ("[paper]", "[rock]", 1.0, True, False),
        ("[paper]", "[paper]", 0.5, False, False),
        ("[paper]", "[scissors]", 0.0, False, True),
    ],
)
def test_a_win_is_one_a_draw_a_half_and_a_loss_nothing(mine, theirs, reward, success, failure, make):
    env = make(TWO, game="IteratedRockPaperScissors-v0", opponent=lambda obs: theirs)
    env.reset(seed=1)
    rewards, terminated = [], False
    while not terminated:
        _, got, terminated, _, info = env.step(mine)
        rewards.append(got)
    assert rewards == [0.0] * 8 + [reward]
    assert (info["score"], info["success"], info["failure"]) == (reward, success, failure)


def test_an_opponent_of_nonsense_loses_even_before_the_first_action(make):
    env = make(TWO, game="Nim-v0", opponent=lambda obs: "nonsense")
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("[0 1]")
    assert (reward, terminated, info["success"], info["action_was_valid"]) == (1.0, True, True, True)
    obs, _ = env.reset(seed=1)
    assert obs["text"].endswith("No valid move format found. Use '[pile quantity]'.") and obs["valid_actions"] == ("[pass]",)
    assert env.step("anything")[1:3] == (1.0, True)


def test_chance_is_drawn_from_the_seed_and_differs_between_folds(make):
    env = make(TWO, game="ConnectFour-v0", player=0)
    plays = [replies(env, seed, ["[col 0]", "[col 1]", "[col 2]"]) for seed in (7, 7, 8)]
    assert plays[0] == plays[1] != plays[2]
    folds = [
        replies(make(TWO, game="ConnectFour-v0", player=0, fold=fold), 7, ["[col 0]", "[col 1]"]) for fold in ("train", "test")
    ]
    assert folds[0] != folds[1] and folds[0] == replies(env, 1_000_007, ["[col 0]", "[col 1]"])


def test_a_function_sees_the_game_from_its_own_side(make):
    seen = []
    env = make(TWO, game="KuhnPoker-v0", player=0, opponent=lambda obs: seen.append(obs) or obs["valid_actions"][0])
    obs, _ = env.reset(seed=2)
    env.step(obs["valid_actions"][0])
    assert obs["goal"].startswith("You are Player 0") and seen[0]["goal"].startswith("You are Player 1")
    assert obs["text"].partition("Your card is")[2][:6] != seen[0]["text"].partition("Your card is")[2][:6]
    assert set(seen[0]) == set(obs)


# ---------------------------------------------------------------- opponents by name


def test_a_policy_is_an_opponent_by_its_name_and_begins_anew_with_each_episode():
    env = environment_maker(f"{TWO}?game=TicTacToe-v0&player=0&opponent=scripted:[4]|[8]|[7]")()
    first = replies(env, 0, ["[0]", "[1]"])
    assert "placed their symbol (X) in cell 4" in first[0] and "in cell 8" in first[1]
    assert replies(env, 2, ["[0]", "[1]"]) == first


def test_a_model_chooses_among_the_moves_and_two_models_share_a_table(tiny_model, tmp_path):
    name = f"{TWO}?game=Nim-v0&opponent={tiny_model},choose"
    make = environment_maker(name)
    policy = load_policy(tiny_model, make(), mode="choose")
    episodes = list(rollout(make, policy, [0, 1]))
    assert [episode.error for episode in episodes] == [None, None]
    assert all(step.action_was_valid for episode in episodes for step in episode.steps)
    assert episodes[0].environment["kwargs"]["opponent"] == f"{tiny_model},choose"
    again = list(rollout(make, policy, [0, 1]))
    assert [[step.decision.action for step in episode.steps] for episode in again] == [
        [step.decision.action for step in episode.steps] for episode in episodes
    ]
    rows = [name, f"{TWO}?game=Nim-v0", f"{TWO}?game=Nim-v0&opponent=scripted:[0 1]|[1 1]|[2 1]"]
    models = (tiny_model, "scripted:[0 1]|[1 1]|[2 1]")
    table, _ = run(BenchConfig(str(tmp_path), tuple(rows), models=models, modes=("choose",), episodes=2, llm_episodes=1))
    assert len(re.findall(r"\| random +\|", table)) == len(re.findall(rf"\| {tiny_model}, choose +\|", table)) == 3


def test_other_weights_of_an_opponent_are_another_environment_in_records(tiny_model, tmp_path):
    folder = shutil.copytree(tiny_model, tmp_path / "model")

    def identity(opponent):
        importlib.import_module("gym_text_policies.run.opponents")._loaded.clear()
        env = environment_maker(f"{TWO}?game=Nim-v0&opponent={opponent}")()
        return environment_config(env)

    before = identity(f"{folder},choose")
    assert identity(f"{folder},choose") == before and str(folder) not in before["player"].values()
    with (folder / "tokenizer_config.json").open("a") as file:
        file.write(" ")
    assert identity(f"{folder},choose") != before
    assert "source" in identity(f"{__name__}:Remembers")["player"]
    assert not {"player"} & (identity("random").keys() | identity("scripted:[0 1]").keys()), "recorded as ever"


class Remembers(Policy):
    """Plays the first move, and notes what it is shown of the past."""

    seen: list[tuple] = []  # noqa: RUF012

    @property
    def config(self):
        return {"kind": "remembers"}

    def wrap(self, env):
        from gym_text.wrappers import History

        return History(env, 2)

    def decide(self, turns):
        self.seen += [(turn.obs["history"], turn.step, turn.last) for turn in turns]
        return [Decision(turn.obs["valid_actions"][0]) for turn in turns]


def test_an_opponents_wrappers_show_it_its_own_past():
    env = environment_maker(f"{TWO}?game=TicTacToe-v0&player=0&opponent={__name__}:Remembers")()
    Remembers.seen.clear()
    env.reset(seed=0)
    for action in ("[8]", "[6]", "[5]"):
        env.step(action)
    seen = Remembers.seen
    assert [len(history) for history, *_ in seen] == [0, 1, 2] and [step for _, step, _ in seen] == [0, 1, 2]
    assert [action for _, action in seen[2][0]] == ["[0]", "[1]"] and seen[2][2].action == "[1]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"opponent": "smolm2"}, "Did you mean 'smollm2'"),
        ({"opponent": "gold"}, "policy 'gold': expected an environment with an expert"),
        ({"opponent": "sb3:model.zip"}, "got a file of stable-baselines3"),
        ({"player": 2}, "player: expected 0, 1, or None, which lets the seed decide; got 2"),
        ({"game": "SimpleNegotiation-v0"}, "opponent: expected a policy, as SimpleNegotiation-v0 lists no moves"),
        (
            {"game": "SimpleNegotiation-v0", "opponent": "scripted:a,choose"},
            "mode 'choose': expected a game that lists its actions",
        ),
    ],
)
def test_an_opponent_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        make_environment(TWO, **arguments)


# ---------------------------------------------------------------- games that take any words


def test_a_model_talks_where_no_moves_are_listed():
    make = environment_maker(TALK)
    policy = load_policy("scripted: [Offer: 1 Wheat -> 1 Ore] please. ", make())
    (episode,) = rollout(make, policy, [0])
    step = episode.steps[0]
    assert step.decision.action == "[Offer: 1 Wheat -> 1 Ore] please." and step.decision.valid and step.action_was_valid
    assert "valid_actions" not in step.observation and policy.config["strategy"] == "words" and policy.config["max_tokens"] == 60
    system, user = step.decision.messages
    assert "You are Player 0 in the Negotiation Game." in system["content"] and user["content"].endswith("What do you say?")
    assert "[Player 1] [Deny]" in episode.steps[1].decision.messages[1]["content"]


def test_what_needs_a_list_of_moves_says_so():
    env = environment_maker(TALK)()
    spec, backend = env.get_wrapper_attr("text_spec"), ScriptedBackend(["hello"])
    assert not spec.lists_actions and spec.names({"text": "", "goal": ""}) == ()
    for what, make in (
        ("policy 'random'", lambda: load_policy("random", env)),
        ("mode 'choose'", lambda: load_policy(backend, env, mode="choose")),
        ("strategy 'zero_shot'", lambda: load_policy(backend, env, strategy="zero_shot")),
        ("trim", lambda: list(plan_of(CollectConfig(environments=(TALK,), model="scripted:hello", trim=True)))),
        ("noise", lambda: MixedPolicy(LLMPolicy(backend, spec, strategy="words"), noise=0.5)),
    ):
        with pytest.raises(UsageError, match=f"{what}: expected a game that lists its actions; this one takes any words"):
            make()
    assert as_policy(lambda obs: "hello", env)({"text": "", "goal": ""}) == "hello"


@pytest.mark.parametrize(
    ("mode", "reason", "told"),
    [
        ("text", "empty", "say your action, in any words"),
        ("json", "empty", "say your action"),
        ("tool", "no action", "say your action"),
    ],
)
def test_an_empty_answer_is_counted_as_unusable_and_the_model_is_told_what_it_may_say(mode, reason, told):
    make, asked = environment_maker(f"{TALK}&max_episode_steps=2"), []
    said = iter(["[Offer: 1 Wheat -> 1 Ore]", " \n", "", "[Deny]"])

    def answer(request):
        asked.append(request.messages[-1]["content"])
        return next(said)

    (episode,) = rollout(make, load_policy(ScriptedBackend(answer), make(), mode=mode, strategy="words", on_invalid="retry"), [0])
    first, second = (step.decision for step in episode.steps)
    assert (first.valid, first.retries, first.action) == (True, 0, "[Offer: 1 Wheat -> 1 Ore]")
    assert (second.valid, second.retries, second.action) == (True, 2, "[Deny]")
    assert all(told in text and "one of these actions" not in text for text in asked[2:])
    (episode,) = rollout(make, load_policy(ScriptedBackend([""]), make(), mode=mode, strategy="words"), [0])
    assert episode.error is None and {step.decision.invalid for step in episode.steps} == {reason}


def test_a_person_plays_by_words_and_by_the_numbers_of_the_moves():
    env = environment_maker(TALK)()
    lines, shown = iter(["", "?", "[Deny] no"]), []
    person = Person(env.get_wrapper_attr("text_spec"), lambda: next(lines), shown.append)
    assert person(env.reset(seed=0)[0]) == "[Deny] no"
    env = environment_maker(f"{TWO}?player=0")()
    person = Person(env.get_wrapper_attr("text_spec"), lambda: "4", shown.append)
    assert person(env.reset(seed=0)[0]) == "[4]", "the move itself, not the fourth of the list"


class Drawing(Policy):
    """Notes a random number at each step, and draws any number of others."""

    numbers: list[float] = []  # noqa: RUF012
    others = 0

    @property
    def config(self):
        return {"kind": "drawing"}

    def decide(self, turns):
        self.numbers += [turn.rng.random(1 + self.others)[0] for turn in turns]
        return [Decision(turn.obs["valid_actions"][0]) for turn in turns]


def test_an_opponents_draws_depend_on_nothing_that_was_drawn_before(monkeypatch):
    env = environment_maker(f"{TWO}?game=TicTacToe-v0&player=0&opponent={__name__}:Drawing")()
    drawn = []
    for others in (0, 5):
        monkeypatch.setattr(Drawing, "others", others)
        Drawing.numbers.clear()
        replies(env, 0, ["[8]", "[6]", "[5]"])
        drawn.append(list(Drawing.numbers))
    assert drawn[0] == drawn[1] and len(set(drawn[0])) == 3


# ---------------------------------------------------------------- copies for looking ahead


def test_a_fork_asks_the_opponent_nothing_again_and_each_copy_has_its_own():
    env = environment_maker(f"{TWO}?game=TicTacToe-v0&player=0&opponent={__name__}:Remembers")()
    Remembers.seen.clear()
    env.reset(seed=0)
    env.step("[8]")
    copied = fork(env)
    assert len(Remembers.seen) == 1
    texts = [[tried.step(action)[0]["text"] for action in ("[6]", "[5]")] for tried in (copied, env)]
    assert texts[0] == texts[1]
    histories = [history for history, *_ in Remembers.seen]
    assert len(histories) == 5 and histories[1:3] == histories[3:5]


def test_a_fork_goes_on_with_the_next_answer_of_a_script():
    env = environment_maker(f"{TWO}?game=TicTacToe-v0&player=0&opponent=scripted:[4]|[8]|[7]")()
    env.reset(seed=0)
    env.step("[0]")
    copied = fork(env)
    texts = [[tried.step(action)[0]["text"] for action in ("[1]", "[3]")] for tried in (copied, env)]
    assert texts[0] == texts[1] and "in cell 8" in texts[0][0] and "in cell 7" in texts[0][1]
