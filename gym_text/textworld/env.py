"""TextWorld's games as Gymnasium environments: their base class, and what their specs and docstrings share.

The engine is Microsoft's TextWorld (Côté et al. 2018, https://arxiv.org/abs/1806.11532), with its own client.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from gym_text.errors import check_choice, check_int
from gym_text.folds import FOLD_SIZE, FOLDS, fold_seed
from gym_text.index_actions import Actions, IndexActionsEnv, game_space
from gym_text.parameters import INDEX_ACTIONS, GameWithParameters
from gym_text.spec import Action, Observation
from gym_text.text_env import Expert, Fold, Outcome
from gym_text.textworld.level_files import Levels
from gym_text.textworld.session import Session, SessionState, command_of

_MAX_TEXT = 16384
"""Most characters of a text; the longest room seen has about 2,500."""
EXPLORE = (
    Action("look", "describe the present room"),
    Action("inventory", "list what you carry"),
    Action("go {direction}", "walk north, east, south or west"),
    Action("examine {thing}", "look at a thing"),
)
TAKE = (Action("take {thing}", "pick up a thing from the floor"), Action("take {thing} from {place}", "pick it up from elsewhere"))
DROP = Action("drop {thing}", "put down a thing on the floor")
PUT = (Action("put {thing} on {supporter}", "put down a thing"), Action("insert {thing} into {container}", "put a thing away"))
OPEN = (Action("open {thing}", "open a door or container"), Action("close {thing}", "close it"))
UNLOCK = (Action("unlock {thing} with {key}", "unlock a door or container"), Action("lock {thing} with {key}", "lock it"))

_TEXTS = {
    "engine": "textworld 1.7.0",
    "action_space": f"""\
`Text`: any string is a legal action. ``obs["valid_actions"]`` has TextWorld's admissible commands; the game understands other
words for them too ("get" for "take"). A command that the game does not understand costs a step and sets
``info["action_was_valid"]`` to False; so do "wait" and commands to the interpreter instead of the game (restart, undo, save …).

{INDEX_ACTIONS} n is {{n}}.""",
    "text": "the game's answer to the last action, without title, prompt and status line, in ASCII",
    "goal": "the game's objective",
    "starting_state": """\
Seed s plays level ``s % num_levels`` of the fold. Level i of train is TextWorld's seed 1,000,000 + i, of dev 2,000,000 + i, of
test 3,000,000 + i: the game that ``tw-make --seed`` makes with the same settings and ``--only-last-action``. A level is made at its
first use, offline, in some seconds, and kept (``GYM_TEXT_GAMES`` names the folder).""",
    "info": """\
`gold_path` is the walkthrough in the game file, without the steps that have no effect. If it does not win when it is played at
reset, `gold_path` is TextWorld's own plan; if that does not win either, the key is left out. With ``expert="replan"`` TextWorld
makes a new plan in every state off that path (TextWorld's policy commands), as long as the game can be won. Such a plan takes the
things that it needs without reading the cookbook first. `gold_steps` is the number of steps in the plan that begins with
`gold_action`.""",
}


class TextWorldEnv(GameWithParameters, IndexActionsEnv):
    """Base class of TextWorld's games. The expert's path is the walkthrough in a game's file.

    Args:
        num_levels: Levels in a fold.
        actions: ``text``: an action is its name. ``index``: an action is its index in ``obs["valid_actions"]``.
        fold: The set of levels.
        expert: The hints in ``info``.
        render_mode: ``ansi``, ``rgb_array`` or None.
        parameters: The game's parameters; ``difficulty`` is the name of a preset; other arguments replace its values.

    Raises:
        UsageError: If an argument is unknown, or its value is not one that the table `parameters` allows.
    """

    texts = _TEXTS
    argument_rows: ClassVar[tuple[str, ...]] = ("| `num_levels` | 1 to 1000000 | 1000 | levels in a fold |",)
    challenge: ClassVar[str]
    """TextWorld's name for the game."""

    def __init__(
        self,
        *,
        num_levels: int = 1000,
        actions: Actions = "text",
        fold: Fold = "train",
        expert: Expert = "path",
        render_mode: str | None = None,
        **parameters: int | bool | str | None,
    ) -> None:
        check_choice("fold", fold, FOLDS)
        super().__init__(fold=fold, expert=expert, render_mode=render_mode)
        self.num_levels = check_int("num_levels", num_levels, 1, FOLD_SIZE)
        self.game_parameters = self.read_parameters(parameters)
        self.levels = Levels(self.challenge, self._settings())
        self._set_actions(self.game_spec, actions, self.index_size(self.game_parameters))
        self.observation_space = game_space(_MAX_TEXT)
        self._session: Session | None = None
        self._state: SessionState | None = None

    def _settings(self) -> dict[str, int | bool | str]:
        """Return the settings under TextWorld's names."""
        return dict(self.engine_parameters(self.game_parameters))

    @property
    def fold_size(self) -> int:
        """Levels in a fold: ``num_levels``."""
        return self.num_levels

    def _level_seed(self, seed: int) -> int:
        return fold_seed(self.fold, seed % self.num_levels)

    def level_file(self, seed: int) -> Path:
        """Return the story file of a level, and make it first if needed.

        Args:
            seed: TextWorld's seed of the level.
        """
        return self.levels.file(seed)

    def _game(self) -> Session:
        if self._session is None:
            self._session = Session(plans=self.expert == "replan")
        return self._session

    def _start(self, seed: int) -> Observation:
        return self._observation(self._game().start(self.level_file(seed)))

    def _play(self, action: Any) -> Outcome:
        assert self._state is not None
        before, command = self._state, command_of(self._command(action))
        was_listed = command in before.valid_actions
        obs = self._observation(self._game().step(command))
        after, points = self._state, self._game().most_points
        return Outcome(
            obs,
            after.score / points - before.score / points,
            terminated=after.won or after.lost,
            success=after.won,
            failure=after.lost,
            action_was_valid=was_listed or after.moves > before.moves,
        )

    def _observation(self, state: SessionState) -> Observation:
        self._state, self._valid = state, state.valid_actions
        return {
            "text": state.text[:_MAX_TEXT],
            "goal": self._game().goal[:_MAX_TEXT],
            "look": state.look[:_MAX_TEXT],
            "inventory": state.inventory[:_MAX_TEXT],
            "valid_actions": state.valid_actions,
        }

    def close(self) -> None:
        """Release the game."""
        if self._session is not None:
            self._session.close()
        self._session, self._state, self._valid = None, None, ()
        super().close()

    # ---------------------------------------------------------------- the expert

    def _plan(self, seed: int) -> tuple[str, ...] | None:
        game = self._game()
        game.start(self.level_file(seed))
        return game.winning(game.walkthrough) or game.winning(game.policy()) or None

    def _replan(self) -> tuple[str, ...] | None:
        assert self._state is not None
        return self._state.policy
