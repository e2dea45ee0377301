"""Optimisers that propose parameters: random, CMA-ES, a Gaussian process."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from gym_text.errors import UsageError, import_extra
from gym_text_policies.policies.parametric import Form
from gym_text_policies.search.evaluations import Evaluation, Proposal, best

_STREAMS = ("random", "cma", "gp", "model", "fallback")


def generator(seed: int, stream: str, index: int) -> np.random.Generator:
    """Return the random generator of one proposal. It depends on the arguments alone, not on earlier proposals."""
    return np.random.default_rng([seed, _STREAMS.index(stream), index])


class Optimiser(ABC):
    """Proposes parameters, given the evaluations so far.

    Equal evaluations give equal proposals, so a killed search can continue.

    Args:
        form: The form of the policy; it has the bounds of the parameters.
        seed: Seed of all random numbers.
        start: Number of evaluations before the first proposal of this optimiser.
    """

    def __init__(self, form: Form, seed: int, start: int = 0) -> None:
        self.form = form
        self.seed = seed
        self.start = start

    @abstractmethod
    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the next proposals. At least the first of them is evaluated before the next call."""

    def unit(self, parameters: Sequence[float]) -> np.ndarray:
        """Scale parameters to the unit cube."""
        return np.asarray((np.array(parameters) - self.form.low) / (self.form.high - self.form.low))

    def parameters(self, unit: np.ndarray) -> tuple[float, ...]:
        """Scale a point of the unit cube to parameters."""
        values = self.form.low + np.clip(unit, 0, 1) * (self.form.high - self.form.low)
        return tuple(np.clip(values, self.form.low, self.form.high).tolist())

    def draw(self, stream: str, index: int) -> tuple[float, ...]:
        """Draw each parameter uniformly within its bounds, for the evaluation with this index."""
        return self.parameters(generator(self.seed, stream, index).uniform(size=len(self.form.parameters)))


class RandomOptimiser(Optimiser):
    """Draws each parameter uniformly within its bounds."""

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the next proposals, which do not depend on earlier evaluations."""
        return [Proposal(self.draw("random", len(history) + i), "random") for i in range(64)]


class CmaOptimiser(Optimiser):
    """CMA-ES, by the package `cma` (https://github.com/CMA-ES/pycma), in the unit cube.

    It starts at the best evaluation so far if it follows another optimiser, otherwise at a random point. When it has converged, it
    restarts, at a random point and at the best evaluation in turn. If there are evaluations in which an episode succeeded, the best
    of these counts as the best: a policy that does nothing may have a greater return, but small changes do not improve it.

    Args:
        form, seed, start: See `Optimiser`.
        sigma: First step size, as a fraction of the range of the parameters.
    """

    def __init__(self, form: Form, seed: int, start: int = 0, *, sigma: float) -> None:
        super().__init__(form, seed, start)
        if len(form.parameters) < 2:
            raise UsageError("optimiser 'cma': expected two parameters or more; got one. Take 'gp' or 'random'.")
        self._cma = import_extra("cma", "search")
        self._sigma = sigma
        self._strategy: Any = None
        self._asked: list[np.ndarray] = []
        self._told = start
        self._starts = 0

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the rest of the current generation, or the next generation."""
        while len(history) - self._told >= len(self._asked):
            if self._asked:
                values = [-evaluation.value for evaluation in history[self._told : self._told + len(self._asked)]]
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # cma warns of equal values, which are common in some tasks
                    self._strategy.tell(self._asked, values)
                self._told += len(self._asked)
            if self._strategy is None or self._strategy.stop():
                self._begin(history[: self._told])
            self._asked = self._strategy.ask()
        return [Proposal(self.parameters(point), "cma") for point in self._asked[len(history) - self._told :]]

    def _begin(self, history: Sequence[Evaluation]) -> None:
        rng = generator(self.seed, "cma", self._starts)
        at_best = bool(history) and (self.start > 0) == (self._starts % 2 == 0)
        solved = [evaluation for evaluation in history if evaluation.successes]
        point = self.unit(best(solved or history).parameters) if at_best else rng.uniform(size=len(self.form.parameters))
        options = {
            "bounds": [0, 1],
            "verbose": -9,
            "seed": np.nan,  # a number would seed numpy's global generator
            "randn": lambda *shape: rng.standard_normal(shape),
            "verb_log": 0,
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._strategy = self._cma.CMAEvolutionStrategy(point, self._sigma, options)
        self._starts += 1


class GpOptimiser(Optimiser):
    """A Gaussian process of scikit-learn with expected improvement, in the unit cube.

    The kernel is Matérn (5/2) with a length for each parameter, and noise. It is fitted by maximum likelihood after every tenth
    evaluation. The candidates for the next proposal are random points and points near the best evaluation so far. More than about a
    thousand evaluations take too long.
    """

    def __init__(self, form: Form, seed: int, start: int = 0) -> None:
        super().__init__(form, seed, start)
        import_extra("sklearn", "search")
        self._first = max(start, 10)  # fewer evaluations are too few to fit: the proposals are random
        self._kernel: Any = None
        self._fitted = 0

    def propose(self, history: Sequence[Evaluation]) -> list[Proposal]:
        """Return the candidate with the greatest expected improvement."""
        n = len(history)
        if n < self._first:
            return [Proposal(self.draw("random", i), "gp") for i in range(n, self._first)]
        from scipy import stats

        rng = generator(self.seed, "gp", n)
        points = np.array([self.unit(evaluation.parameters) for evaluation in history])
        returns = np.array([evaluation.value for evaluation in history])
        values = _standardised(returns)
        fit_at = n - n % 10 if n - n % 10 >= self._first else self._first
        if self._kernel is None or self._fitted != fit_at:
            self._kernel, self._fitted = self._fit(points[:fit_at], _standardised(returns[:fit_at]), None).kernel_, fit_at
        model = self._fit(points, values, self._kernel)
        around = points[np.argmax(values)] + rng.normal(scale=0.05, size=(500, points.shape[1]))
        candidates = np.clip(np.concatenate([rng.uniform(size=(1500, points.shape[1])), around]), 0, 1)
        mean, std = model.predict(candidates, return_std=True)
        gain = mean - values.max()
        z = gain / np.maximum(std, 1e-9)
        improvement = gain * stats.norm.cdf(z) + std * stats.norm.pdf(z)
        return [Proposal(self.parameters(candidates[int(np.argmax(improvement))]), "gp")]

    def _fit(self, points: np.ndarray, values: np.ndarray, kernel: Any) -> Any:
        """Return a process that is fitted to the evaluations. If no kernel is given, the kernel is fitted, too."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

        prior = kernel or (
            ConstantKernel(1.0, (0.01, 100)) * Matern([0.3] * points.shape[1], (0.01, 10), nu=2.5) + WhiteKernel(0.01, (1e-6, 1))
        )
        model = GaussianProcessRegressor(prior, optimizer="fmin_l_bfgs_b" if kernel is None else None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn warns of kernel lengths at their bounds
            return model.fit(points, values)


def _standardised(values: np.ndarray) -> np.ndarray:
    return np.asarray((values - values.mean()) / (values.std() or 1.0))
