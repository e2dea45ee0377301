"""TextArena's games for two players as an environment, in which the agent is one of the players."""

from __future__ import annotations

from typing import Any, Literal, Self

from gym_text.errors import UsageError
from gym_text.opponents import Opponent, Player, forked, opponents
from gym_text.spec import Observation
from gym_text.text_env import Expert, Fold, Outcome
from gym_text.textarena.engine import NO_MOVE
from gym_text.textarena.env import ArenaEnv


class TextArenaTwoPlayersEnv(ArenaEnv):
    """Seventeen games for two players of TextArena, against random moves or any policy.

    ## Description

    Board games, games of cards and dice, and negotiations from TextArena (Guertler et al. 2025, https://arxiv.org/abs/2504.11442),
    with its ids. Variants such as ``ConnectFour-v0-blind`` are games as well; ``gym_text.textarena.games.games(2)`` lists them.
    The agent is one of the players; the environment lets `opponent` play the other.

    | game | lists its moves |
    |---|---|
    | `Breakthrough-v0` | yes |
    | `Chopsticks-v0` | yes |
    | `ColonelBlotto-v0` | no |
    | `ConnectFour-v0` | yes |
    | `GameOfPureStrategy-v0` | yes |
    | `IteratedPrisonersDilemma-v0` | no: the players talk |
    | `IteratedRockPaperScissors-v0` | yes |
    | `IteratedTwoThirdsAverage-v0` | no |
    | `KuhnPoker-v0` | yes |
    | `Nim-v0` | yes |
    | `Othello-v0` | yes |
    | `PigDice-v0` | yes |
    | `SimpleNegotiation-v0` | no: the players talk |
    | `SimpleTak-v0` | yes |
    | `TicTacToe-v0` | yes |
    | `TruthAndDeception-v0` | no: the players talk |
    | `WildTicTacToe-v0` | yes |

    ## Action Space

    `Text`: any string. TextArena looks for a move in square brackets, such as ``[4]``; except where players talk, it puts brackets
    around an action without them. ``info["action_was_valid"]`` says whether the game accepted it. After one invalid move
    TextArena says what was wrong and asks again; after a second invalid move in a row the player has lost. This holds for the
    opponent as well.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | what the game and the opponent have said since the last action; at the end also how it ended |
    | `goal` | `Text` | the rules and the task, and which player the agent is |
    | `valid_actions` | `Sequence` of `Text` | the moves that the game accepts now; only where the game lists them |

    All texts are printable ASCII. The opponent's observations have the same keys.

    ## Rewards

    0 until the end, then 1 for a win, 0.5 for a draw and 0 for a loss. The score is the same number.

    ## Starting State

    TextArena makes the level from the seed. With even seeds the agent is player 0, with odd seeds player 1, unless `player` is
    given. If the opponent moves first, the first observation comes after the opponent's move.

    ## Episode End

    Terminated when the game is over: ``info["success"]`` for a win, ``info["failure"]`` for a loss, neither for a draw. Truncated
    after 200 steps of the agent. If the opponent's two invalid moves have ended the game before the agent's first action, any
    action ends the episode with a win.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `game` | see the table | TicTacToe-v0 | TextArena's id |
    | `opponent` | random, a policy, a function | random | who plays the other side, see below |
    | `player` | None, 0, 1 | None | the agent's side; None: 0 for even seeds, 1 for odd ones |
    | `fold` | None, train, dev, test | None | None keeps the seed; a fold shifts it into a range that begins at 1, 2 or 3 million |
    | `expert` | off, path, replan | path | without effect: there is no expert |
    | `render_mode` | ansi, rgb_array | None | text, or a picture of text and moves; for human in a window |

    ``random`` draws a legal move; the seed determines the draws. A function takes an observation and returns an action as text;
    copies of the game by `fork` share it, unless it is an object with a method ``fork``, which returns its copy. The name of a
    policy (``smollm2``, ``openai:MODEL``, ``scripted:[0]|[4]``, and after a comma its mode: ``smollm2,choose``) is known once
    `gym_text_policies` is imported.

    ## Info

    Only the keys that all environments have; there is no expert.

    ## Version History

    * v0: first version, on textarena 0.7.4.
    """

    players = 2
    reward = "At the end 1 for a win, 0.5 for a draw, 0 for a loss."

    def __init__(
        self,
        *,
        game: str = "TicTacToe-v0",
        opponent: Opponent = "random",
        player: Literal[0, 1] | None = None,
        fold: Fold | None = None,
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(game, fold=fold, expert=expert, render_mode=render_mode)
        if player not in (None, 0, 1) or isinstance(player, bool):
            raise UsageError(f"player: expected 0, 1, or None, which lets the seed decide; got {player!r}.")
        self._side = player
        self._player = 0
        self._opponents = opponents(opponent, self)
        self.identity: dict[str, Any] = getattr(self._opponents, "identity", {})  # of the opponent, beyond its name, for records
        self._opponent: Player | None = None

    def _start(self, seed: int) -> Observation:
        self._player = seed % 2 if self._side is None else self._side
        self._begin_game(seed)
        self._opponent = self._opponents(seed)
        self._let_opponent_play()
        obs = self._observe(self._player)
        return obs | {"valid_actions": (NO_MOVE,)} if obs.get("valid_actions") == () else obs  # for a game that is over

    def _fork_game(self, twin: Self) -> bool:
        twin._player = self._player
        twin._opponent = None if self._opponent is None else forked(self._opponent)
        return super()._fork_game(twin)

    def _play(self, action: str) -> Outcome:
        was_valid = True
        if not self._arena.over:  # else the opponent has lost before the first action
            was_valid = self._arena.play(action)
            self._let_opponent_play()
        return self._outcome(self._player, was_valid)

    def _let_opponent_play(self) -> None:
        """Let the opponent act until it is the agent's turn, or the game is over."""
        assert self._opponent is not None
        while not self._arena.over and self._arena.player != self._player:
            self._arena.play(str(self._opponent(self._observe(1 - self._player))))

    def _score(self, reward: float) -> float:
        return (min(max(reward, -1.0), 1.0) + 1) / 2
