"""`LookAhead`: a policy that tries actions in copies of the game before it decides."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, OrderedDict, defaultdict
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
    worlds: int | None = None

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
    behind a door. With `worlds` it knows no more than they do: it searches in several copies of the game that agree with what the
    player has seen; the rest is drawn anew. These searches share the simulations and vote (perfect-information Monte Carlo).

    The search of a decision depends on nothing but the present state and the settings. In exact copies, what the player said of a
    state is kept for the next decision of the episode, which begins at one of the states that this search has seen.

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
        unused = OF_PUCT if self._search.method != "puct" else () if self._search.worlds else ("worlds",)
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
        if self._search.worlds is not None:
            return self._decide_in_worlds(turns, self._search.worlds)
        searches = [_RunningSearch(self._root(turn), self.spec, self._search) for turn in turns]
        self._finish(searches)
        for turn, search in zip(turns, searches, strict=True):
            if turn.episode:
                self._known[turn.episode, turn.step] = search.root
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return [search.decision() for search in searches]

    def _decide_in_worlds(self, turns: Sequence[Turn], worlds: int) -> list[Decision]:
        """Search in copies that agree with what the player has seen. The player is asked about the present state once."""
        of_turns = []
        for turn, decision in zip(turns, self.player.decide(turns), strict=True):
            searches = []
            for number, rng in enumerate(turn.rng.spawn(worlds)):
                root = self._node(unseen_drawn(turn, rng))
                root.decision, root.prior = decision, self._search.prior(decision, root.names)
                simulations = self._search.simulations // worlds + (number < self._search.simulations % worlds)
                settings = dataclasses.replace(self._search, simulations=simulations)
                searches.append(_RunningSearch(root, self.spec, settings))
            of_turns.append(searches)
        everywhere = [search for searches in of_turns for search in searches]
        self._finish(everywhere)
        for search in everywhere:
            search.root.turn.obs["fork"].env.close()
        return [_vote(searches) for searches in of_turns]

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
            turn: The turn. It needs the name of its episode. There is no tree of a search with `worlds`.
        """
        return self._known[turn.episode, turn.step]


def unseen_drawn(turn: Turn, rng: np.random.Generator) -> Turn:
    """Return a turn in a copy of its game, in which what the player has not seen is drawn anew.

    Raises:
        UsageError: If the environment cannot draw anew what the player has not seen.
    """
    try:
        env = turn.obs["fork"](unseen=rng)
    except UsageError as error:
        raise UsageError(f"worlds: {error} Leave out worlds, and the search is in exact copies.") from error
    return dataclasses.replace(turn, obs={**turn.obs, "fork": dataclasses.replace(turn.obs["fork"], env=env)})


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


def _vote(searches: Sequence[_RunningSearch]) -> Decision:
    """Return the decision of several searches from one state.

    Each simulation is a vote for its first action. A search that has found a plan gives all of its simulations to the plan's first
    action.
    """
    root, settings = searches[0].root, searches[0].settings
    found = [search.decision() for search in searches]
    visits, votes, totals = Counter[str](), Counter[str](), defaultdict[str, float](float)
    for search, decision in zip(searches, found, strict=True):
        here = decision.visits or {}
        visits.update(here)
        votes.update({decision.plan[0]: search.settings.simulations} if decision.plan else here)
        for name, value in (decision.values or {}).items():
            totals[name] += value * here[name]
    assert root.decision is not None
    action = settings.chosen(root.names, votes, root.prior, searches[0].rng)
    return dataclasses.replace(
        root.decision,
        action=action,
        probabilities=root.prior,
        visits={name: votes[name] for name in visits},
        values={name: totals[name] / count for name, count in visits.items()},
        plan=min((decision.plan for decision in found if decision.plan[:1] == (action,)), key=len, default=()),
        model_calls=1 + sum(decision.model_calls for decision in found),
        simulator_steps=sum(decision.simulator_steps for decision in found),
        **spent([root.decision, *found]),
    )
