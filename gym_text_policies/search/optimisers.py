"""What proposes parameters: at random, from a list, by CMA-ES, by a Gaussian process, or one after another."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from gym_text.errors import UsageError, import_extra
from gym_text_policies.policies.forms import Form
from gym_text_policies.search.records import Evaluation, Proposal, best

_STREAMS = ("random", "cma", "gp", "model", "fallback")


def generator(seed: int, stream: str, index: int) -> np.random.Generator:
    """Return the generator of one proposal: the same in every process, and whatever was proposed before."""
    return np.random.default_rng([seed, _STREAMS.index(stream), index])


class Optimiser(ABC):
    """From the evaluations so far to the next proposals. Equal evaluations give equal proposals: so a run can go on after a kill.

    Args:
        form: Of the policy, for the bounds of its parameters.
        seed: Of all that is drawn at random.
    """

    def __init__(self, form: Form, seed: int) -> None:
        self.form = form
        self.seed = seed

    @abstractmethod
    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return what to try next; of several, some or all are evaluated before it is asked again."""

    def unit(self, parameters: Sequence[float]) -> np.ndarray:
        """Return parameters as places in the unit cube."""
        return np.asarray((np.array(parameters) - self.form.low) / (self.form.high - self.form.low))

    def parameters(self, unit: np.ndarray) -> tuple[float, ...]:
        """Return the parameters at a place in the unit cube."""
        values = self.form.low + np.clip(unit, 0, 1) * (self.form.high - self.form.low)
        return tuple(np.clip(values, self.form.low, self.form.high).tolist())


class RandomOptimiser(Optimiser):
    """Draw each parameter evenly from its bounds."""

    ahead = 64
    """Proposals at once; none depends on a result."""

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the next proposals."""
        return [Proposal(self.draw(len(history) + i), "random") for i in range(self.ahead)]

    def draw(self, index: int) -> tuple[float, ...]:
        """Return the proposal of an evaluation."""
        return self.parameters(generator(self.seed, "random", index).uniform(size=len(self.form.parameters)))


class ZeroOptimiser(Optimiser):
    """Propose zeros: what a search has to beat that only ever looks there."""

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return zeros, as often as is fastest."""
        zeros = tuple(np.clip(np.zeros(len(self.form.low)), self.form.low, self.form.high).tolist())
        return [Proposal(zeros, "zero")] * RandomOptimiser.ahead


class ScriptedOptimiser(Optimiser):
    """Propose what a list says.

    Args:
        form: Of the policy.
        script: Parameters of each proposal.
    """

    def __init__(self, form: Form, script: Sequence[Sequence[float]]) -> None:
        super().__init__(form, 0)
        for i, row in enumerate(script):
            if len(row) != len(form.parameters):
                raise UsageError(f"proposals: expected {len(form.parameters)} numbers in each row; got {len(row)} in row {i}.")
        self._script = [tuple(float(value) for value in row) for row in script]

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the rest of the list."""
        rest = self._script[len(history) :]
        if not rest:
            raise UsageError(f"proposals: expected one for each evaluation; the list ends after {len(self._script)}.")
        return [Proposal(row, "scripted") for row in rest]


class CmaOptimiser(Optimiser):
    """CMA-ES, by the package `cma` (https://github.com/CMA-ES/pycma), in the unit cube.

    Begun with evaluations of another optimiser it starts at the best of them, else at a random place. Where it has converged it
    starts again at a random place, or at the best so far, in turn. The best is of those in which an episode succeeded, where there
    are any: next to a policy that returns most by doing nothing there is nothing to find.

    Args:
        form: Of the policy.
        seed: Of all that is drawn at random.
        sigma: First step size, as a share of the range of the parameters.
        start: Number of evaluations before its own.
    """

    def __init__(self, form: Form, seed: int, *, sigma: float, start: int = 0) -> None:
        super().__init__(form, seed)
        if len(form.parameters) < 2:
            raise UsageError("optimiser 'cma': expected two parameters or more; got one. Take 'gp' or 'random'.")
        self._cma = import_extra("cma", "search")
        self._sigma = sigma
        self._start = start
        self._strategy: Any = None
        self._asked: list[np.ndarray] = []
        self._told = start
        self._starts = 0

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the rest of the present generation, or the next one."""
        while len(history) - self._told >= len(self._asked):
            if self._asked:
                values = [-evaluation.value for evaluation in history[self._told : self._told + len(self._asked)]]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of flat values, which a task may well give
                    self._strategy.tell(self._asked, values)
                self._told += len(self._asked)
            if self._strategy is None or self._strategy.stop():
                self._begin(history[: self._told])
            self._asked = self._strategy.ask()
        return [Proposal(self.parameters(place), "cma") for place in self._asked[len(history) - self._told :]]

    def _begin(self, history: Sequence[Evaluation]) -> None:
        rng = generator(self.seed, "cma", self._starts)
        at_best = bool(history) and (self._start > 0) == (self._starts % 2 == 0)
        solved = [evaluation for evaluation in history if evaluation.successes]
        place = self.unit(best(solved or history).parameters) if at_best else rng.uniform(size=len(self.form.parameters))
        options = {
            "bounds": [0, 1],
            "verbose": -9,
            "seed": np.nan,  # it would seed numpy's global generator
            "randn": lambda *shape: rng.standard_normal(shape),
            "verb_log": 0,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._strategy = self._cma.CMAEvolutionStrategy(place, self._sigma, options)
        self._starts += 1


class GpOptimiser(Optimiser):
    """A Gaussian process of scikit-learn and the expected improvement, in the unit cube.

    A Matérn kernel (5/2) with a length for each parameter and noise, fitted to the likelihood after each tenth evaluation; the next
    proposal is the best of many random places and of places near the best so far. Only a thousand evaluations or so are practical.

    Args:
        form: Of the policy.
        seed: Of all that is drawn at random.
        start: Number of evaluations before its own.
        first: Random proposals before the first fit, where there are no evaluations before its own.
    """

    def __init__(self, form: Form, seed: int, *, start: int = 0, first: int = 10) -> None:
        super().__init__(form, seed)
        import_extra("sklearn", "search")
        self._first = max(start, first)
        self._random = RandomOptimiser(form, seed)
        self._kernel: Any = None
        self._fitted = 0

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the place of greatest expected improvement."""
        n = len(history)
        if n < self._first:
            return [Proposal(self._random.draw(i), "gp") for i in range(n, self._first)]
        from scipy import stats

        rng = generator(self.seed, "gp", n)
        places = np.array([self.unit(evaluation.parameters) for evaluation in history])
        found = np.array([evaluation.value for evaluation in history])
        values = _standardised(found)
        fit_at = n - n % 10 if n - n % 10 >= self._first else self._first
        if self._kernel is None or self._fitted != fit_at:
            self._kernel, self._fitted = self._fit(places[:fit_at], _standardised(found[:fit_at]), None).kernel_, fit_at
        model = self._fit(places, values, self._kernel)
        around = places[np.argmax(values)] + rng.normal(scale=0.05, size=(500, places.shape[1]))
        candidates = np.clip(np.concatenate([rng.uniform(size=(1500, places.shape[1])), around]), 0, 1)
        mean, std = model.predict(candidates, return_std=True)
        gain = mean - values.max()
        z = gain / np.maximum(std, 1e-9)
        improvement = gain * stats.norm.cdf(z) + std * stats.norm.pdf(z)
        return [Proposal(self.parameters(candidates[int(np.argmax(improvement))]), "gp")]

    def _fit(self, places: np.ndarray, values: np.ndarray, kernel: Any) -> Any:
        """Return the process given the evaluations; without a kernel, with the likeliest one."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        given = kernel or (
            ConstantKernel(1.0, (0.01, 100)) * Matern([0.3] * places.shape[1], (0.01, 10), nu=2.5) + WhiteKernel(0.01, (1e-6, 1))
        )
        model = GaussianProcessRegressor(given, optimizer="fmin_l_bfgs_b" if kernel is None else None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of lengths at their limits
            return model.fit(places, values)


def _standardised(values: np.ndarray) -> np.ndarray:
    return np.asarray((values - values.mean()) / (values.std() or 1.0))


class Then(Optimiser):
    """One optimiser, and from a certain evaluation on another, which knows all evaluations before.

    Args:
        first: The one.
        second: The other.
        at: Evaluations after which the other takes over.
    """

    def __init__(self, first: Optimiser, second: Optimiser, at: int) -> None:
        super().__init__(first.form, first.seed)
        self._first, self._second, self._at = first, second, at

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the proposals of whose turn it is."""
        left = self._at - len(history)
        return self._first.propose(history)[:left] if left > 0 else self._second.propose(history)
