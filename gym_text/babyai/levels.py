"""The five tasks of the text form of BabyAI, on stock minigrid.

A seed gives the same level as level ``MixedTrainLocal`` of ``mixed_seq_levels.py`` in
https://github.com/flowersteam/Grounding_LLMs_with_online_RL (MIT; Carta et al. 2023, https://arxiv.org/abs/2302.02662), on which
BALROG's BabyAI tasks are played. This code is new and draws its random numbers in the same order. In the original the constructor
draws the task; here the task is an argument.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

from minigrid.core.roomgrid import RoomGrid
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel
from minigrid.envs.babyai.core.verifier import (
    AfterInstr,
    BeforeInstr,
    GoToInstr,
    Instr,
    ObjDesc,
    OpenInstr,
    PickupInstr,
    PutNextInstr,
)

Task = Literal["goto", "pickup", "open", "putnext", "pick_up_seq_go_to"]
TASKS: tuple[Task, ...] = get_args(Task)
HELD_OUT = ("yellow box", "red key", "red door", "green ball", "grey door")
"""Objects that no mission names: they are kept for tests of generalisation."""
MOST_DISTS = 16
"""With more objects the agent can reach all of them in hardly any room, and to draw such a room takes minutes."""
DOOR_COLORS = ("yellow", "green", "blue", "purple")


class TaskLevel(RoomGridLevel):
    """A level of one room of 6 x 6 cells; for ``open`` of two such rooms with a locked door between them.

    Args:
        task: What the mission asks for.
        num_dists: Objects besides those of the mission.
    """

    def __init__(self, task: Task, num_dists: int = 0) -> None:
        self.task = task
        self.num_dists = num_dists
        self.instrs: Instr
        super().__init__(room_size=8, num_rows=1, num_cols=2 if task == "open" else 1)

    def gen_mission(self) -> None:
        """Draw rooms, objects, agent and mission until every object can be reached and the mission is not held out."""
        while True:
            RoomGrid._gen_grid(self, self.width, self.height)
            self.instrs = self._open_mission() if self.task == "open" else self._object_mission()
            mission = self.instrs.surface(self)
            if self.check_objs_reachable(raise_exc=False) and not any(words in mission for words in HELD_OUT):
                return

    def _open_mission(self) -> Instr:
        color = self._rand_elem(DOOR_COLORS)
        locked_room = self._lock_a_room(color)
        self.connect_all()
        for column in range(self.num_cols):
            if self.get_room(column, 0) is not locked_room:
                self.add_distractors(column, 0, self.num_dists, all_unique=False)
        self.place_agent()
        while self.room_from_pos(*self.agent_pos) is locked_room:
            self.place_agent()
        return OpenInstr(ObjDesc("door", self._rand_elem([None, color])))

    def _lock_a_room(self, color: str) -> Any:
        """Lock one of the two rooms, put the key into the other room, and return the locked room."""
        locked_room: Any = None
        while locked_room is None:
            column, row, side = self._rand_int(0, self.num_cols), self._rand_int(0, self.num_rows), self._rand_int(0, 4)
            if self.get_room(column, row).neighbors[side] is not None:
                locked_room = self.get_room(column, row)
                self.add_door(column, row, side, color, locked=True)
        while True:
            column, row = self._rand_int(0, self.num_cols), self._rand_int(0, self.num_rows)
            if self.get_room(column, row) is not locked_room:
                self.add_object(column, row, "key", color)
                return locked_room

    def _object_mission(self) -> Instr:
        needed = 1 if self.task in ("goto", "pickup") else 2
        self.place_agent()
        things = self.add_distractors(num_distractors=self.num_dists + needed, all_unique=False)
        first = self._describe(self._rand_elem(things))
        if self.task == "goto":
            return GoToInstr(first)
        if self.task == "pickup":
            return PickupInstr(first)
        second = self._describe(self._rand_elem(things))
        if len(first.find_matching_objs(self)[0]) < 2:  # then the second must be a different kind of thing
            while (second.type, second.color) == (first.type, first.color):
                second = self._describe(self._rand_elem(things))
        if self.task == "putnext":
            return PutNextInstr(first, second)
        pick_up, go_to = PickupInstr(first), GoToInstr(second)
        return BeforeInstr(pick_up, go_to) if self._rand_elem([True, False]) else AfterInstr(go_to, pick_up)

    @staticmethod
    def _describe(thing: Any) -> ObjDesc:
        return ObjDesc(thing.type, thing.color)
