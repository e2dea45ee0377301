"""TextArena's games: equal to TextArena itself, seeded by themselves, with moves that the games accept."""

import copy
import pickle
import random
import re

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

from gym_text import UsageError
from gym_text.copies import fork
from gym_text.textarena.engine import Arena, printable
from gym_text.textarena.games import ONE_PLAYER, TWO_PLAYERS
from gym_text.textarena.moves import MOVES
from gym_text_policies.policies.parsing import parse_action

ONE, TWO = "TextArenaText-v0", "TextArenaTwoPlayers-v0"
ALL = [(ONE, name) for name in ONE_PLAYER] + [(TWO, name) for name in TWO_PLAYERS]
LISTED = [(env_id, name) for env_id, name in ALL if name in MOVES]
ONE_LEVEL = ("Countdown", "Cryptarithm", "PegJump", "TowerOfHanoi")
SLOW = ("RushHour", "Sokoban")  # to begin
KINDS = [
    (ONE, "2048"),
    (ONE, "Mastermind"),
    (ONE, "Blackjack"),
    (TWO, "ConnectFour"),
    (TWO, "KuhnPoker"),
    (TWO, "SimpleNegotiation"),
]
"""One game of each kind: boards, words, cards; for one player and for two."""
WORDS = {
    "Mastermind": ["[1 2 3 4]", "[2 1 4 3]", "1 3 5 6", "[6 6 6 6]", "none"],
    "Sudoku": ["[1 1 1]", "[5 5 5]", "[9 9 9]", "[0 0 0]", "none"],
    "ColonelBlotto": ["[A20 B0 C0]", "[A7 B7 C6]", "A1 B9 C10", "[A99]"],
    "IteratedPrisonersDilemma": ["Let us cooperate.", "[Defect]", "I say [Cooperate]"],
    "IteratedTwoThirdsAverage": ["[0]", "[33.5]", "66", "[101]"],
    "SimpleNegotiation": ["[Accept]", "[Deny] No!", "[Offer: 1 Wheat -> 1 Ore]", "hello"],
    "TruthAndDeception": ["The first is right.", "[Fact 1]", "[Fact 2]"],
}
"""What is said in games that list no moves."""


def says(name, rng):
    """Return a player that draws a listed move or a phrase, and now and then says nonsense."""

    def player(obs):
        names = obs.get("valid_actions") or WORDS[name]
        return "nonsense" if rng.random() < 0.05 else str(names[rng.integers(len(names))])

    return player


def play(env_id, name, seed, steps=30, before_step=lambda: None, **arguments):
    """Return all that an environment says in an episode of drawn actions, and the log of all players' texts and actions."""
    log, player = [], says(name, np.random.default_rng(seed))
    if env_id == TWO:
        theirs = says(name, np.random.default_rng([seed, 7]))

        def opponent(obs):
            log.append((obs["text"], theirs(obs)))
            return log[-1][1]

        arguments["opponent"] = opponent
    env = gym.make(env_id, game=f"{name}-v0", **arguments)
    said = [env.reset(seed=seed)]
    for _ in range(steps):
        log.append((said[-1][0]["text"], player(said[-1][0])))
        before_step()
        said.append(env.step(log[-1][1]))
        assert said[-1][0] in env.observation_space
        if said[-1][2] or said[-1][3]:
            break
    env.close()
    return said, log


def heard(core, player):
    """Return the words that TextArena's own environment has for a player since it was last asked."""
    messages, core.state.observations[player] = core.state.observations[player], []
    lines = []
    for sender, words, kind in messages:
        if not isinstance(words, str):
            continue  # an action, noted by Countdown and others with its parts in each other's place
        own = kind.name == "PLAYER_ACTION" and (sender == player or core.state.num_players == 1)
        role = f"[{core.state.role_mapping[sender]}] " if kind.name == "PLAYER_ACTION" else ""
        lines += [] if kind.name == "PROMPT" or own else [f"{role}{words}"]
    return printable("\n".join(lines)).strip("\n")


# ---------------------------------------------------------------- the engine


@pytest.mark.parametrize(("env_id", "name"), ALL)
def test_the_game_is_textarenas_own_step_by_step(env_id, name):
    ta = pytest.importorskip("textarena")
    seeds, state = (3,), random.getstate()
    for seed in seeds:
        said, log = play(env_id, name, seed)
        theirs = ta.make(f"{name}-v0")
        theirs.reset(num_players=1 if env_id == ONE else 2, seed=seed)
        core = theirs
        while hasattr(core, "env"):
            core = core.env
        for text, action in log:
            player = core.state.current_player_id
            assert text == (heard(core, player) or "It is your turn.")
            done, _ = theirs.step(action=action)
        obs, reward, terminated, *_ = said[-1]
        assert terminated == bool(done)
        if done:
            rewards, info = theirs.close()
            ours = seed % 2 if env_id == TWO else 0
            reward_of = rewards[ours] if not isinstance(rewards[ours], str) else 0
            assert reward == (max(reward_of, 0) if env_id == ONE else (reward_of + 1) / 2)
            assert obs["text"].endswith(printable(str(info[ours].get("reason", ""))))
    random.setstate(state)


def test_no_random_number_of_others_changes_and_others_change_none():
    state = random.getstate()
    plain = play(ONE, "2048", 5)
    assert random.getstate() == state
    assert data_equivalence(play(ONE, "2048", 5, before_step=random.random), plain)
    random.setstate(state)
    ones, others = (gym.make(ONE, game="2048-v0") for _ in range(2))
    ones.reset(seed=5)
    others.reset(seed=6)
    moved = [ones.step("[up]")[0]["text"], others.step("[up]")[0]["text"]]
    ones.reset(seed=5)
    assert ones.step("[up]")[0]["text"] == moved[0] != moved[1]
    assert random.getstate() == state


@pytest.mark.parametrize("name", [name for name in ONE_PLAYER if name not in SLOW])
def test_another_seed_is_another_level_where_the_game_has_levels(name):
    env, starts = gym.make(ONE, game=f"{name}-v0"), set()
    for seed in range(5):
        first = env.reset(seed=seed)[0]["text"]
        action = {"GuessTheNumber": "[10]", "Mastermind": "[1 2 3 4]", "Minesweeper": "[3 3]"}.get(
            name
        )  # it is not seen at the start
        starts.add((first, env.step(action)[0]["text"] if action else ""))
    assert (len(starts) == 1) == (name in ONE_LEVEL)


def test_nothing_is_printed_even_where_the_game_prints(capfd):
    play(ONE, "RushHour", 0)
    assert capfd.readouterr() == ("", "")


# ---------------------------------------------------------------- moves


@pytest.mark.parametrize(("env_id", "name"), LISTED)
def test_the_listed_moves_are_those_that_the_game_accepts(env_id, name):
    arena, rng, states, universe = Arena(f"{name}-v0", 1 if env_id == ONE else 2), np.random.default_rng(0), [], set()
    arena.start(0)
    for step in range(12):
        if arena.over:
            break
        moves = arena.moves()
        universe.update(moves[:40])
        if step in (0, 3, 4, 9):
            states.append((copy.deepcopy(arena), moves))
        assert list(moves) == sorted(set(moves))
        assert arena.play(str(rng.choice(moves))) or name == "Minesweeper", "a mine counts as an invalid move"
    for state, moves in states:
        for move in sorted(universe):
            accepted = copy.deepcopy(state).play(move)
            assert accepted == (move in moves) or (name == "Minesweeper" and move in moves), (move, moves)


# ---------------------------------------------------------------- the contract


@pytest.mark.parametrize(("env_id", "name"), KINDS)
def test_any_string_is_answered(env_id, name):
    more = {"opponent": says(name, np.random.default_rng(0))} if env_id == TWO else {}
    env = gym.make(env_id, game=f"{name}-v0", **more)
    for action in ("", "sing", "[" + "9" * 6000 + "]", "[-1 0 0 0]", "\x00\n", "é \U0001f52a", "\ud800", "[[]]", "[1 2 3", "[٣]"):
        env.reset(seed=1)
        obs, _, _, _, info = env.step(action)
        assert obs in env.observation_space and type(info["action_was_valid"]) is bool


def test_one_invalid_move_is_told_and_the_second_in_a_row_ends_the_game(make):
    env = make(ONE)
    env.reset(seed=0)
    for valid in ("[1]", "2"):  # brackets are put around it
        obs, reward, terminated, _, info = env.step("seven")
        assert "attempted an invalid move" in obs["text"] and (reward, terminated, info["action_was_valid"]) == (0.0, False, False)
        assert env.step(valid)[4]["action_was_valid"]
    env.step("seven")
    obs, reward, terminated, _, info = env.step("[0]")
    assert terminated and info["failure"] and not info["success"] and not info["action_was_valid"]
    assert reward == info["score"] < 1 and obs["text"].endswith("guessed a number outside the range specified.")


def test_a_solved_game_is_won_with_a_score_of_one(make):
    env = make(ONE, game="TowerOfHanoi-v0")
    env.reset(seed=0)
    for move in ("A C", "A B", "C B", "A C", "B A", "B C", "A C"):
        obs, reward, terminated, _, info = env.step(f"[{move}]")
        assert info["action_was_valid"]
    assert terminated and (reward, info["score"], info["success"], info["failure"]) == (1.0, 1.0, True, False)
    assert obs["text"].endswith("You solved the Tower of Hanoi puzzle.") and obs["valid_actions"] == ()


def test_signs_outside_ascii_become_their_own_ascii(make):
    assert printable("10♠ K♥ 2♣ 3♦ ●○ √ a → b “x” – …") == '10S KH 2C 3D *o V a -> b "x" - ...'
    assert printable("El Niño 🐍\x07") == "El Nino ??"
    texts = [make(ONE, game=f"{name}-v0").reset(seed=0)[0] for name in ("Blackjack", "PegJump", "Slitherlink", "Cryptarithm")]
    assert not any("?" in obs["text"] for obs in texts)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("env_id", [ONE, TWO])
def test_a_copy_goes_on_where_the_original_is(env_id, duplicate, make):
    env = make(env_id)
    obs, _ = env.reset(seed=5)
    obs, *_ = env.step(obs["valid_actions"][0])
    twin = duplicate(env)
    assert data_equivalence(env.step(obs["valid_actions"][1]), twin.step(obs["valid_actions"][1]))
    assert data_equivalence(env.reset(), twin.reset())


class Says:
    """An opponent that draws what it says, and that copies of the game copy."""

    def __init__(self, name, rng):
        self.name, self.rng = name, rng

    def __call__(self, obs):
        return says(self.name, self.rng)(obs)

    def fork(self):
        return Says(self.name, copy.deepcopy(self.rng))


@pytest.mark.parametrize(("env_id", "name"), KINDS)
def test_a_fork_goes_on_and_leaves_the_original_alone(env_id, name, make):
    opponent = {"opponent": Says(name, np.random.default_rng(7))} if env_id == TWO else {}
    env, player = make(env_id, game=f"{name}-v0", **opponent), says(name, np.random.default_rng(0))
    obs, _ = env.reset(seed=4)
    for step in range(20):
        if step % 4 == 0:
            first, second = fork(env), fork(env)
            for action in ("nonsense", "nonsense again"):  # the second one ends the game
                over = first.step(action)[2]
                if over:
                    break
        action = player(obs)
        answer = env.step(action)
        assert data_equivalence(second.step(action), answer)
        obs = answer[0]
        if answer[2]:
            break


@pytest.mark.parametrize("name", ["TowerOfHanoi", "RushHour"])
def test_a_move_that_is_not_listed_is_no_answer(name):
    env = gym.make(ONE, game=f"{name}-v0")
    obs, _ = env.reset(seed=0)
    spec, listed = env.get_wrapper_attr("text_spec"), obs["valid_actions"]
    opposite = str.maketrans("+-", "-+") if name == "RushHour" else str.maketrans("ABC", "BCA")
    others = {move.translate(opposite) for move in listed} | {f"[{move[1:-1][::-1]}]" for move in listed}
    assert others - set(listed)
    for move in others:
        assert parse_action(f"I play {move}", spec, obs) == (move if move in listed else None)


# ---------------------------------------------------------------- which games


@pytest.mark.parametrize(
    ("env_id", "arguments", "message"),
    [
        (ONE, {"game": "GuessTheNumber"}, "Did you mean 'GuessTheNumber-v0'"),
        (ONE, {"game": "Wordle-v0"}, "docs/worlds.md says which games are left out, and why."),
        (ONE, {"game": "Nim-v0"}, "game: Nim-v0 is for two players; make TextArenaTwoPlayers-v0 with it."),
    ],
)
def test_a_game_that_cannot_be_played_is_refused_with_the_reason(env_id, arguments, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        gym.make(env_id, **arguments)
