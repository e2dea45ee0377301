"""`LookAhead`: a policy that tries actions in copies of the game before it decides."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from gym_text import TextSpec
from gym_text.errors import UsageError
from gym_text.wrappers import Forks
from gym_text_policies.drawing import evened, tempered
from gym_text_policies.policies.beam import beam
from gym_text_policies.policies.best_of_n import best_of_n
from gym_text_policies.policies.puct import Leaf, puct
from gym_text_policies.policies.tree import Asking, Node, Simulator, worth_of
from gym_text_policies.policies.worlds import drawn_worlds
from gym_text_policies.policy import Policy, check_lists_actions
from gym_text_policies.records import Decision, Turn

Method = Literal["puct", "best_of_n", "beam"]
METHODS = ("puct", "best_of_n", "beam")
OF_PUCT = ("exploration", "leaf", "worlds")
"""Settings that puct alone takes."""
_SPENT = ("tokens_in", "tokens_cached", "tokens_out", "tokens_reasoning", "cost")
"""Fields of a decision that are sums over all answers of the search."""
_REMEMBERED = 128
"""Most episodes whose last search is kept."""
Answers = dict[Hashable, Decision]
"""What the player said in the states of an episode, by all that it saw there."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """The settings of a search; see `PolicyConfig`."""

    method: Method
    simulations: int
    exploration: float
    depth: int | None
    leaf: Leaf
    prior_temperature: float
    uniform_share: float
    temperature: float
    worlds: int | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Search:
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


class LookAhead(Policy):
    """Asks another policy for its probabilities in the present state and in states that may follow, and plays what a search finds.

    It needs the game itself: `wrap` puts on the wrapper `Forks`. So it knows what other players cannot know, such as what lies
    behind a door; unless it searches in several drawn worlds, copies in which what the player has not seen is drawn anew. Their
    searches share the simulations and vote (perfect-information Monte Carlo).

    The search of a decision depends on nothing but the present state and the settings. Without drawn worlds, what the player said
    of a state is kept for the next decision of the episode, which begins at one of the states that this search has seen. A player
    that sees no history is asked once about states that look the same.

    Args:
        player: The other policy. Its probabilities are the prior. It is uniform for a policy without probabilities, such as random.
        search: How to search.

    Raises:
        UsageError: If the game lists no actions, or the player leaves out its probabilities.
    """

    def __init__(self, player: Policy, search: Search) -> None:
        super().__init__(player.spec, seed=player.seed)
        if player.config.get("probabilities") is False:
            raise UsageError(f"probabilities=False: expected no lookahead, which they lead; got lookahead={search.method!r}.")
        check_lists_actions(player.spec, "lookahead")
        self._player = player
        self._search = search
        self._known: OrderedDict[tuple[str, int], tuple[Node, Answers]] = OrderedDict()

    @property
    def remote(self) -> bool:
        """Whether the other policy waits for a provider."""
        return self._player.remote

    @property
    def config(self) -> dict[str, Any]:
        """The other policy's configuration, and the settings of the search."""
        settings = dataclasses.asdict(self._search)
        usual = (("leaf", "score"), ("worlds", None))  # left out, as in records from before there was a choice
        unused = OF_PUCT if self._search.method != "puct" else [name for name, value in usual if settings[name] == value]
        settings = {name: value for name, value in settings.items() if name not in unused}
        return {"kind": "lookahead", "player": self._player.config, **settings, "seed": self.seed}

    def check(self) -> None:
        """Check the other policy."""
        self._player.check()

    def wrap(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        """Put on the other policy's wrappers, and the one that hands out copies of the game."""
        return Forks(self._player.wrap(env))

    def decide(self, turns: Sequence[Turn]) -> list[Decision]:
        """Search for all turns together: states of different episodes are asked about in one call."""
        if self._search.worlds is not None:
            return self._decide_in_worlds(turns, self._search.worlds)
        thinkers = [_Thinker(*self._root(turn), self.spec, self._search) for turn in turns]
        self._think(thinkers)
        for thinker in thinkers:
            self._remember(thinker)
        return [thinker.decision() for thinker in thinkers]

    def _decide_in_worlds(self, turns: Sequence[Turn], worlds: int) -> list[Decision]:
        """Search in drawn worlds. The player is asked about the present state once."""
        searches = []
        for turn, decision in zip(turns, self._player.decide(turns), strict=True):
            thinkers, answers = [], Answers()
            for world, simulations in drawn_worlds(turn, worlds, self._search.simulations):
                root = self._fresh(world)
                root.decision, root.prior = decision, self._search.prior(decision, root.names)
                thinkers.append(_Thinker(root, answers, self.spec, dataclasses.replace(self._search, simulations=simulations)))
            searches.append(thinkers)
        everywhere = [thinker for thinkers in searches for thinker in thinkers]
        self._think(everywhere)
        for thinker in everywhere:
            thinker.root.turn.obs["fork"].env.close()
        return [_vote(thinkers) for thinkers in searches]

    def _think(self, thinkers: Sequence[_Thinker]) -> None:
        """Ask the player for all searches that wait for it, until none waits."""
        while waiting := [thinker for thinker in thinkers if thinker.node is not None]:
            asked = [thinker.node.turn for thinker in waiting if thinker.node is not None]
            for thinker, decision in zip(waiting, self._player.decide(asked), strict=True):
                thinker.answer(decision)

    def _root(self, turn: Turn) -> tuple[Node, Answers]:
        """Return the state of a turn, with what was found out about it in the decision before, and the player's answers so far."""
        fresh = self._fresh(turn)
        before, answers = self._known.pop((turn.episode, turn.step - 1), (None, Answers())) if turn.episode else (None, Answers())
        child = before.children.get(turn.last.action) if before and turn.last else None
        node = child if child and child.names == fresh.names and child.turn.obs["text"] == turn.obs["text"] else fresh
        node.turn = turn
        node.begin()
        return node, answers

    def _fresh(self, turn: Turn) -> Node:
        if "fork" not in turn.obs:
            raise UsageError("obs: expected the key 'fork'; it is missing. Use policy.wrap(env).")
        fork = turn.obs["fork"]
        worth = worth_of(fork.score, over=False, failure=fork.failure)
        return Node(turn, self.spec.names(dict(turn.obs)), fork.score, worth, fork.seen)

    def tree(self, turn: Turn) -> Node:
        """Return the state of a turn that was just decided, with all that the search has found after it.

        Args:
            turn: The turn. It needs the name of its episode. There is no tree of a search in drawn worlds.
        """
        return self._known[turn.episode, turn.step][0]

    def _remember(self, thinker: _Thinker) -> None:
        turn = thinker.root.turn
        if turn.episode:
            self._known[turn.episode, turn.step] = thinker.root, thinker.answers
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)


def _all_seen(turn: Turn) -> Hashable:
    """Return all that the player sees in a turn, if it may see the same in another one; else None."""
    if "history" in turn.obs or any(turn.completions) or any(turn.thoughts):
        return None
    fields = ((name, value) for name, value in turn.obs.items() if name != "fork")
    return tuple((name, value if isinstance(value, Hashable) else repr(value)) for name, value in sorted(fields))


class _Thinker:
    """A search for one decision, which stops where the player has to be asked."""

    def __init__(self, root: Node, answers: Answers, spec: TextSpec, search: Search) -> None:
        self.root = root
        self.answers = answers
        self.node: Node | None = None
        """The state in which the player has to be asked now; None after the search."""
        self.search = search
        self._simulator = Simulator(spec, root)
        self._new_answers: list[Decision] = []
        (self.rng,) = root.turn.rng.spawn(1)  # what the player draws does not change the draw of the action
        self._asking = self._begin()
        self._go_on(None)

    def _begin(self) -> Asking:
        search = self.search
        if search.method == "best_of_n":
            return best_of_n(self.root, self._simulator, simulations=search.simulations, depth=search.depth, rng=self.rng)
        if search.method == "beam":
            return beam(self.root, self._simulator, simulations=search.simulations, depth=search.depth)
        settings = {name: getattr(search, name) for name in ("simulations", "exploration", "depth", "leaf")}
        return puct(self.root, self._simulator, **settings)

    def _go_on(self, decision: Decision | None) -> None:
        """Search on with the player's decision in the state `node`, up to the next state in which the player has to be asked."""
        while True:
            if decision and self.node:
                self.node.prior = self.search.prior(decision, self.node.names)
            try:
                self.node = self._asking.send(decision) if decision else next(self._asking)
            except StopIteration:
                self.node = None
                return
            decision = self.answers.get(_all_seen(self.node.turn))
            if decision is None:
                return

    def answer(self, decision: Decision) -> None:
        """Take the player's decision in the state `node`, and search on."""
        assert self.node is not None
        self._new_answers.append(decision)
        if (seen := _all_seen(self.node.turn)) is not None:
            self.answers[seen] = decision
        self._go_on(decision)

    def decision(self) -> Decision:
        """Return what the search has found."""
        root = self.root
        assert root.decision is not None
        tried = root.tried
        visits = {name: child.visits for name, child in tried.items()}
        values = {name: child.value if self.search.method == "puct" else child.most for name, child in tried.items()}
        losing = {name for name, child in tried.items() if child.lost}
        names = [name for name in root.names if name not in losing] or root.names
        votes = visits if self.search.method == "puct" else values
        return dataclasses.replace(
            root.decision,
            action=root.plan[0] if root.plan else self.search.chosen(names, votes, root.prior, self.rng),
            probabilities=root.prior,
            visits=visits,
            values=values,
            plan=root.plan or (),
            model_calls=len(self._new_answers),
            simulator_steps=self._simulator.steps,
            **{name: sum(getattr(answer, name) for answer in self._new_answers) for name in _SPENT},
        )


def _vote(thinkers: Sequence[_Thinker]) -> Decision:
    """Return the decision of searches from one state in several worlds: a simulation is a vote, and a plan has all its world's."""
    root, search = thinkers[0].root, thinkers[0].search
    found = [thinker.decision() for thinker in thinkers]
    visits, votes, totals = Counter[str](), Counter[str](), defaultdict[str, float](float)
    for thinker, decision in zip(thinkers, found, strict=True):
        here = decision.visits or {}
        visits.update(here)
        votes.update({decision.plan[0]: thinker.search.simulations} if decision.plan else here)
        for name, value in (decision.values or {}).items():
            totals[name] += value * here[name]
    assert root.decision is not None
    answers = [root.decision, *found]
    action = search.chosen(root.names, votes, root.prior, thinkers[0].rng)
    return dataclasses.replace(
        root.decision,
        action=action,
        probabilities=root.prior,
        visits={name: votes[name] for name in visits},
        values={name: totals[name] / count for name, count in visits.items()},
        plan=min((decision.plan for decision in found if decision.plan[:1] == (action,)), key=len, default=()),
        model_calls=1 + sum(decision.model_calls for decision in found),
        simulator_steps=sum(decision.simulator_steps for decision in found),
        **{name: sum(getattr(answer, name) for answer in answers) for name in _SPENT},
    )


def mixed_prior(
    probabilities: Mapping[str, float] | None, names: Sequence[str], temperature: float, uniform_share: float
) -> dict[str, float]:
    """Return the prior of a state.

    Args:
        probabilities: The player's probabilities; None: all actions are equally probable.
        names: The valid actions.
        temperature: The probabilities are taken to the power of 1 / temperature, and normalised.
        uniform_share: The share of the prior that is then spread evenly over all actions.
    """
    if probabilities is None:
        return dict.fromkeys(names, 1 / len(names))
    weights = tempered([probabilities[name] for name in names], temperature)
    return evened(dict(zip(names, weights.tolist(), strict=True)), uniform_share)
