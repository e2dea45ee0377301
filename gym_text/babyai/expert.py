"""minigrid's bot as an expert in any state of an episode. After a failure a new bot starts; if that fails too, there is no advice.

The bot's budget is counted in steps and in rounds of planning, not in time. Therefore the same state gives the same plan on any
machine.
"""

from __future__ import annotations

import logging
from typing import Any

from minigrid.envs.babyai.core.verifier import AfterInstr, PickupInstr, PutNextInstr, SeqInstr
from minigrid.utils.baby_ai_bot import BabyAIBot, DropSubgoal, ExploreSubgoal, GoNextToSubgoal

from gym_text.babyai.describe import look

_logger = logging.getLogger(__name__)
_ROUNDS = 50
"""Number of rounds of planning for one action; a bot that has a plan needs few."""


class Advisor:
    """Advice for one episode; call `advise` once a step.

    Args:
        game: The game of minigrid, just reset.
    """

    def __init__(self, game: Any) -> None:
        self._game = game
        self._bot: _Bot | None = None

    def advise(self, last_action: int | None) -> int | None:
        """Return the next action, or None if the bot finds no plan.

        Args:
            last_action: The action played since the last call; None at the start.
        """
        for new_bot in (False, True) if self._bot else (True,):
            try:
                if self._bot is None or new_bot:
                    self._bot, last_action = _Bot(self._game, self._bot), None
                return self._bot.advise(last_action)
            except Exception as error:  # the bot fails by assertions, index errors and others
                _logger.debug("minigrid's bot found no plan: %r", error)
        self._bot = None
        return None


class _NoPlanError(Exception):
    """The bot has no subgoal left, or has spent its rounds of planning."""


class _BoundedStack(list[Any]):
    """The bot's stack of subgoals. The bot reads the top of the stack once a round.

    The stack counts these reads, as the bot might never stop.
    """

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        if self.reads > _ROUNDS:
            raise _NoPlanError(f"no action after {_ROUNDS} rounds")
        return super().__getitem__(index)


class _Bot(BabyAIBot):
    """minigrid's bot, able to start in the middle of an episode: it skips what is done, and first drops what it carries."""

    def __init__(self, game: Any, earlier: _Bot | None) -> None:
        super().__init__(game)
        self.stack: Any = _BoundedStack(self.stack)
        if earlier:
            self.vis_mask = earlier.vis_mask
        if game.carrying:
            self._process_obs()
            self.stack += [DropSubgoal(self), GoNextToSubgoal(self, self._find_drop_pos())]

    def advise(self, last_action: int | None) -> int:
        self.stack.reads = 0
        action = self.replan(None if last_action is None else self.mission.actions(last_action))
        if action == self.mission.actions.done:
            raise _NoPlanError("the bot takes the mission for done")
        return int(action)

    def _process_instr(self, instr: Any) -> None:
        if not isinstance(instr, SeqInstr):
            # for other instructions it is enough to go where the object was
            if isinstance(instr, PickupInstr | PutNextInstr):
                self._check_exists(instr)
            super()._process_instr(instr)
            return
        sequence: Any = instr
        parts = [(sequence.instr_a, sequence.a_done), (sequence.instr_b, sequence.b_done)]
        for part, done in parts if isinstance(instr, AfterInstr) else parts[::-1]:  # the last subgoal on the stack is done first
            if done != "success":
                self._process_instr(part)

    def _check_exists(self, instr: Any) -> None:
        """Raise `_NoPlanError` if no object of the instruction is left: a box disappears when it is opened."""
        remaining = {id(thing) for thing in (*self.mission.grid.grid, self.mission.carrying)}
        for wanted in (instr.desc,) if isinstance(instr, PickupInstr) else (instr.desc_move, instr.desc_fixed):
            if not any(id(thing) in remaining for thing in wanted.obj_set):
                raise _NoPlanError(f"there is no {wanted.color} {wanted.type} any more")

    def _shortest_path(self, accept_fn: Any, try_with_blockers: bool = False) -> Any:
        """Do not explore through a locked door while the bot searches for the door's key: the bot would plan in circles."""
        goals = list(self.stack)
        if goals and isinstance(goals[-1], ExploreSubgoal):
            doors = [goal.datum for goal in goals if goal.reason == "Open"]
            return super()._shortest_path(
                lambda position, cell: accept_fn(position, cell) and not any(cell is door for door in doors if door),
                try_with_blockers,
            )
        return super()._shortest_path(accept_fn, try_with_blockers)

    def _process_obs(self) -> None:
        for cell in look(self.mission).cells():
            self.vis_mask[cell] = True
