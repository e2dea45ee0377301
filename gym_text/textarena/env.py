"""TextArena's games for one player as an environment, and the base class that the games for two players share."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from gymnasium import spaces

from gym_text.spaces import ActionNames, FreeText
from gym_text.spec import Action, Field, Observation, TextSpec
from gym_text.text_env import Expert, Fold, Outcome, TextEnv
from gym_text.textarena.engine import Arena, check_installed
from gym_text.textarena.games import check_game, lists_moves

_MAX_TEXT = 32768
"""Most characters of a text; a longer text loses its beginning. The longest text measured has 4,000."""
_NOTHING_NEW = "It is your turn."
"""Text of an observation if the game has said nothing since the last action."""


class ArenaEnv(TextEnv):
    """Base class of the two environments: a game of TextArena from the side of one player.

    A subclass sets the number of players and the sentence about the reward, and has the docstring of the environment.

    Args:
        game: TextArena's id of the game.
        fold: The range of seeds.
        expert: Without effect, as there is no expert.
        render_mode: ``ansi``, ``rgb_array`` or None.

    Raises:
        MissingDependencyError: If TextArena is not installed.
        UsageError: If the game is unknown or left out.
    """

    players: ClassVar[int]
    reward: ClassVar[str]
    metadata: ClassVar[dict[str, Any]] = TextEnv.metadata | {"render_fps": 2}  # type: ignore[misc]
    _frame_titles: ClassVar[dict[str, str]] = {"text": "the game", "goal": "rules"}

    def __init__(self, game: str, *, fold: Fold | None, expert: Expert, render_mode: str | None) -> None:
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        check_installed()
        check_game(game, self.players)
        self.game = game
        self._lists = lists_moves(game)
        self.text_spec = _spec(self.reward, self._lists)
        self.action_space = FreeText(256 if self._lists else 1000)  # where players talk, TextArena keeps the last 1,000, too
        keys: dict[str, spaces.Space[Any]] = {"text": FreeText(_MAX_TEXT), "goal": FreeText(_MAX_TEXT)}
        self.observation_space = spaces.Dict(keys | ({"valid_actions": ActionNames()} if self._lists else {}))
        self._arena = Arena(game, self.players)
        self._goals: dict[int, str] = {}

    def _begin_game(self, seed: int) -> None:
        """Begin the game of a seed."""
        self._goals.clear()
        self._arena.start(seed)

    def _fork_game(self, twin: Self) -> bool:
        twin._arena, twin._goals = self._arena.fork(), self._goals.copy()
        return True

    def _observe(self, player: int) -> Observation:
        """Return the observation of a player, at its turn or after the end."""
        prompt, text = self._arena.messages(player)
        self._goals.setdefault(player, prompt)
        if self._arena.over:
            text = "\n".join(filter(None, (text, self._arena.ending(player)[1])))
        obs: Observation = {"text": (text or _NOTHING_NEW)[-_MAX_TEXT:], "goal": self._goals[player][-_MAX_TEXT:]}
        if not self._lists:
            return obs
        return obs | {"valid_actions": () if self._arena.over else self._arena.moves()}

    def _score(self, reward: float) -> float:
        """Return the score, 0 to 1, for TextArena's reward at the end."""
        raise NotImplementedError

    def _outcome(self, player: int, was_valid: bool) -> Outcome:
        """Return the outcome of an action for the player who took it."""
        obs = self._observe(player)
        if not self._arena.over:
            return Outcome(obs, 0.0, terminated=False, action_was_valid=was_valid)
        score = self._score(self._arena.ending(player)[0])
        lost = score < 1 if self.players == 1 else score < 0.5
        return Outcome(obs, score, terminated=True, success=score == 1, failure=lost, action_was_valid=was_valid)


def _spec(reward: str, lists: bool) -> TextSpec:
    """Return the spec of any of the games; the rules of a game are the goal of its episodes."""
    fields = {
        "text": Field("what the game, and the other player if there is one, have said since your last action"),
        "goal": Field("the rules and the task"),
    }
    move = Action("[{move}]", "make a move, written in square brackets as the task says")
    words = Action("{words}", "say any words; the game takes the move in square brackets that is among them")
    if lists:
        fields["valid_actions"] = Field("the moves that the game accepts now", is_list=True)
    return TextSpec("A game whose rules the task tells. Win it.", fields, (move if lists else words,), "text", reward=reward)


class TextArenaEnv(ArenaEnv):
    """Seventeen games for one player of TextArena.

    ## Description

    Puzzles and games of chance from TextArena (Guertler et al. 2025, https://arxiv.org/abs/2504.11442), with its ids. Variants
    such as ``2048-v0-easy`` or ``Mastermind-v0-hard`` are games as well; ``gym_text.textarena.games.games(1)`` lists them.

    | game | lists its moves | the agent wins by |
    |---|---|---|
    | `2048-v0` | yes | reaching the tile |
    | `Blackjack-v0` | yes | winning every hand |
    | `Countdown-v0` (1) | yes | reaching the number |
    | `Cryptarithm-v0` (1) | yes | the right digits |
    | `FrozenLake-v0` | yes | reaching the goal |
    | `GuessTheNumber-v0` | yes | the right number |
    | `LightsOut-v0` | yes | turning all lights off |
    | `Mastermind-v0` | no | the right code |
    | `Minesweeper-v0` | yes | revealing all cells without a mine |
    | `PegJump-v0` (1) | yes | one peg left |
    | `RushHour-v0` | yes | driving the red car out |
    | `Secretary-v0` | yes | taking the greatest value |
    | `Slitherlink-v0` | yes | the loop that fits the numbers |
    | `Sokoban-v0` | yes | all boxes on their places |
    | `Sudoku-v0` | no | filling the grid |
    | `ThreeCardMonte-v0` | yes | the cup with the ball |
    | `TowerOfHanoi-v0` (1) | yes | moving the tower |

    (1) The level is the same for every seed.

    ## Action Space

    `Text`: any string. TextArena looks for a move in square brackets, such as ``[5]``, and puts brackets around an action without
    them. ``info["action_was_valid"]`` says whether the game accepted it. After an invalid move TextArena says what was wrong and
    asks again; after a second invalid move in a row the game is over.

    ## Observation Space

    `Dict`:

    | key | space | meaning |
    |---|---|---|
    | `text` | `Text` | what the game has said since the last action: answers and the board; at the end also how it ended |
    | `goal` | `Text` | the rules and the task |
    | `valid_actions` | `Sequence` of `Text` | the moves that the game accepts now; only where the game lists them |

    All texts are printable ASCII: suits are S, C, H and D, a box on its goal in Sokoban is V, and so on.

    ## Rewards

    0 until the end, then TextArena's reward, 0 to 1: 1 for a solved game, else the share that the game counts as done. A reward
    below 0 counts as 0. The score is the same number.

    ## Starting State

    TextArena makes the level from the seed.

    ## Episode End

    Terminated when the game is solved (``info["success"]``) or over without a solution (``info["failure"]``). TextArena's own
    limit of turns and two invalid moves in a row end a game, too. Truncated after 200 steps, as RushHour has no limit of its own,
    and the limits of 2048 and of the longest variants are greater.

    ## Arguments

    | argument | values | registered | meaning |
    |---|---|---|---|
    | `game` | see the table | GuessTheNumber-v0 | TextArena's id |
    | `fold` | None, train, dev, test | None | None keeps the seed; a fold shifts it into a range that begins at 1, 2 or 3 million |
    | `expert` | off, path, replan | path | without effect: there is no expert |
    | `render_mode` | ansi, rgb_array | None | text, or a picture of text and moves; for human in a window |

    ## Info

    Only the keys that all environments have; there is no expert.

    ## Version History

    * v0: first version, on textarena 0.7.4.
    """

    players = 1
    reward = "At the end 1 for a solved game, else the share of it that the game counts as done."

    def __init__(
        self,
        *,
        game: str = "GuessTheNumber-v0",
        fold: Fold | None = None,
        expert: Expert = "path",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(game, fold=fold, expert=expert, render_mode=render_mode)

    def _start(self, seed: int) -> Observation:
        self._begin_game(seed)
        return self._observe(0)

    def _play(self, action: str) -> Outcome:
        return self._outcome(0, self._arena.play(action))

    def _score(self, reward: float) -> float:
        return min(max(reward, 0.0), 1.0)
