"""`LookAhead`: a policy that tries actions in copies of the game before it decides."""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from gym_text import TextSpec
from gym_text.errors import UsageError
from gym_text.wrappers.forks import Forks, look
from gym_text_policies.backends.base import spent
from gym_text_policies.policies.tree_search import OF_PUCT, Method, Node, Simulator, mixed_prior, search_from, worth_of
from gym_text_policies.policy import Policy, PolicyWrapper, check_lists_actions, tempered
from gym_text_policies.records import Decision, Turn

_REMEMBERED = 128
"""Most episodes whose last search is kept."""


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """The settings of a search; see `PolicyConfig`."""

    method: Method
    simulations: int
    exploration: float
    prior_temperature: float
    uniform_share: float
    temperature: float

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SearchSettings:
        """Return the settings of a policy's search."""
        names = [field.name for field in dataclasses.fields(cls) if field.name != "method"]
        given: dict[str, Any] = {name: settings.get(name) for name in names}
        return cls(method=settings["lookahead"], **given)

    def prior(self, decision: Decision, names: Sequence[str]) -> dict[str, float]:
        """Return the prior of a state, by the player's decision there."""
        return mixed_prior(decision.probabilities, names, self.prior_temperature, self.uniform_share)

    def chosen(self, names: Sequence[str], votes: Mapping[str, float], prior: Mapping[str, float], rng: np.random.Generator) -> str:
        """Return the action with the most votes, or, at a temperature above 0, one that is drawn by its votes."""
        if self.temperature == 0:
            return max(names, key=lambda name: (votes.get(name, -math.inf), prior[name]))
        counted = [float(votes.get(name, 0)) for name in names]
        weights = tempered(counted if any(counted) else [prior[name] for name in names], self.temperature)
        return names[rng.choice(len(weights), p=weights)]


class LookAhead(PolicyWrapper):
    """Asks another policy for its probabilities in the present state and in states that may follow, and plays what a search finds.

    It needs the game itself: `wrap` puts on the wrapper `Forks`. So it knows what other players cannot know, such as what lies
    behind a door.

    The search of a decision depends on nothing but the present state and the settings. What the player said of a state is kept for
    the next decision of the episode, which begins at one of the states that this search has seen.

    Args:
        player: The other policy. Its probabilities are the prior. It is uniform for a policy without probabilities, such as random.
        search: How to search.

    Raises:
        UsageError: If the game lists no actions, or the player leaves out its probabilities.
    """

    def __init__(self, player: Policy, search: SearchSettings) -> None:
        super().__init__(player)
        if player.config.get("probabilities") is False:
            raise UsageError(f"probabilities=False: expected no lookahead, which they lead; got lookahead={search.method!r}.")
        check_lists_actions(player.spec, "lookahead")
        self._search = search
        self._known: OrderedDict[tuple[str, int], Node] = OrderedDict()

    @property
    def config(self) -> dict[str, Any]:
        """The other policy's configuration, and the settings of the search."""
        settings = dataclasses.asdict(self._search)
        unused = OF_PUCT if self._search.method != "puct" else ()
        settings = {name: value for name, value in settings.items() if name not in unused}
        return {"kind": "lookahead", "player": self.player.config, **settings, "seed": self.seed}

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the other policy's wrappers, and the one that hands out copies of the game."""
        return Forks(self.player.wrap(env))

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Search for all turns together: states of different episodes are asked about in one call."""
        for turn in turns:
            if "fork" not in turn.obs:
                raise UsageError("obs: expected the key 'fork'; it is missing. Use policy.wrap(env).")
        searches = [_RunningSearch(self._root(turn), self.spec, self._search) for turn in turns]
        self._finish(searches)
        for turn, search in zip(turns, searches, strict=True):
            if turn.episode:
                self._known[turn.episode, turn.step] = search.root
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return [search.decision() for search in searches]

    def _finish(self, searches: Sequence[_RunningSearch]) -> None:
        """Ask the player for all searches that wait for it, until none waits."""
        while waiting := [(search, search.node) for search in searches if search.node is not None]:
            decisions = self.player.decide([node.turn for _, node in waiting])
            for (search, _), decision in zip(waiting, decisions, strict=True):
                search.answer(decision)

    def _root(self, turn: Turn) -> Node:
        """Return the state of a turn, with what was found out about it in the decision before."""
        root = self._node(turn)
        if turn.episode and (turn.episode, turn.step - 1) in self._known:
            before = self._known.pop((turn.episode, turn.step - 1))
            child = before.children.get(turn.last.action) if turn.last else None
            if child and child.names == root.names and look(child.turn.obs) == look(turn.obs):
                root = child
        root.turn = turn
        root.begin()
        return root

    def _node(self, turn: Turn) -> Node:
        fork = turn.obs["fork"]
        worth = worth_of(fork.score, over=False, failure=fork.failure)
        return Node(turn, self.spec.names(dict(turn.obs)), fork.score, worth, fork.seen)

    def tree(self, turn: Turn) -> Node:
        """Return the state of a turn that was just decided, with all that the search has found after it.

        Args:
            turn: The turn. It needs the name of its episode.
        """
        return self._known[turn.episode, turn.step]


class _RunningSearch:
    """A search for one decision, which stops where the player has to be asked."""

    def __init__(self, root: Node, spec: TextSpec, settings: SearchSettings) -> None:
        self.root = root
        self.settings = settings
        self._simulator = Simulator(spec, root)
        self._answers: list[Decision] = []
        (self.rng,) = root.turn.rng.spawn(1)  # what the player draws does not change the draw of the action
        n, exploration = settings.simulations, settings.exploration
        self._states = search_from(root, self._simulator, settings.method, simulations=n, exploration=exploration, rng=self.rng)
        self.node: Node | None = next(self._states, None)
        """The state in which the player has to be asked now; None after the search."""

    def answer(self, decision: Decision) -> None:
        """Take the player's decision in the state `node`, and search on to the next state in which the player has to be asked."""
        assert self.node is not None
        self._answers.append(decision)
        self.node.prior = self.settings.prior(decision, self.node.names)
        try:
            self.node = self._states.send(decision)
        except StopIteration:
            self.node = None

    def decision(self) -> Decision:
        """Return what the search has found."""
        root, settings, by_visits = self.root, self.settings, self.settings.method == "puct"
        assert root.decision is not None
        visits = {name: child.visits for name, child in root.tried.items()}
        values = {name: child.value if by_visits else child.most for name, child in root.tried.items()}
        names = [name for name in root.names if not (name in root.tried and root.tried[name].lost)] or root.names
        votes = visits if by_visits else values
        return dataclasses.replace(
            root.decision,
            action=root.plan[0] if root.plan else settings.chosen(names, votes, root.prior, self.rng),
            probabilities=root.prior,
            visits=visits,
            values=values,
            plan=root.plan,
            model_calls=len(self._answers),
            simulator_steps=self._simulator.steps,
            **spent(self._answers),
        )
