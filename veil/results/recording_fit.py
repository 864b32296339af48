"""How well a model explains a recording: the residuals of each axis, and the tests of the model."""

from dataclasses import asdict, dataclass, fields

import numpy as np
from jaxtyping import Float

from veil.results.parts import Examination, FitTest, Line, each, number

LAGS = 5  # of the Ljung-Box statistic

FEWEST = 20  # residuals; with fewer the tests say nothing


@dataclass(frozen=True)
class Axis:
    """The residuals of one shared axis.

    Attributes:
        name: of the axis.
        std_ratio: their root mean square in units of the model's noise; 1 under the model.
        std_ratio_p: p-value of that, by chi-squared.
        autocorrelation: correlation of neighbours, 0 ± 1/sqrt(count) under the model.
        autocorrelation_p: p-value of no correlation at the first lags, by Ljung and Box.
        effective_samples: so many independent residuals carry as much, if neighbours explain all correlation.
        counts: whether the axis takes part in the verdict.
    """

    name: str
    std_ratio: float
    std_ratio_p: float
    autocorrelation: float
    autocorrelation_p: float
    effective_samples: float
    counts: bool


@dataclass(frozen=True)
class RecordingFit:
    """How well the model explains a recording.

    Attributes:
        axes: the residuals of the best secret, by shared axis.
        count: residuals per axis.
        best: index of the secret of the prior that explains the recording best.
        free: the secret that does so if it may be any.
        free_gain: log-likelihood that this gains over the best of the prior, nats.
        free_p: p-value of such a gain if the best of the prior is the true one.
    """

    axes: tuple[Axis, ...]
    count: int
    best: int
    free: Float[np.ndarray, " P"]
    free_gain: float
    free_p: float

    @property
    def examined(self) -> bool:
        """Whether there is enough to test."""
        return self.count >= FEWEST

    @property
    def examination(self) -> Examination:
        """All tests of the model, those of the axes that count first."""
        tests, error = list[FitTest](), self.count**-0.5 if self.count else 0.0
        for axis in self.axes:
            if axis.counts:
                correlated = (
                    f"residuals of {axis.name} are correlated (neighbours by {axis.autocorrelation:.2f} ± "
                    f"{error:.2f}: {self.count} of them carry as much as {axis.effective_samples:.0f} "
                    "independent ones)"
                )
                size = (
                    f"residuals of {axis.name} are {axis.std_ratio:.3g} times as large as the model's noise"
                )
                name, p = f"correlation of {axis.name}", axis.autocorrelation_p
                tests.append(FitTest(name, axis.autocorrelation, p, correlated))
                tests.append(FitTest(f"size of {axis.name}", axis.std_ratio, axis.std_ratio_p, size))
        values = ", ".join(f"{x:.3g}" for x in self.free)
        outside = f"no secret of the prior is near the best fit, ({values})"
        tests.append(FitTest("free fit of the secret", self.free_gain, self.free_p, outside))
        return Examination(tuple(tests))

    @property
    def p_value(self) -> float:
        """Of all tests together."""
        return self.examination.p_value

    @property
    def ok(self) -> bool:
        """Whether the model is not contradicted."""
        return not self.examined or self.examination.ok

    @property
    def effective_samples(self) -> float:
        """How many independent residuals there are on the axis with the fewest, of those that count."""
        return min((axis.effective_samples for axis in self.axes if axis.counts), default=float(self.count))

    def weights(self) -> Float[np.ndarray, " Y"]:
        """Per axis, the weight of its log-likelihood: independent residuals per residual and variance.

        Never more than one: a model whose noise is too large is taken at its word.
        """
        count = max(self.count, 1)
        weights = [axis.effective_samples / count / max(axis.std_ratio**2, 1e-12) for axis in self.axes]
        return np.minimum(1.0, np.array(weights))

    def to_dict(self) -> Line:
        """A line of measure.json."""
        return asdict(self) | {"ok": self.ok, "weights": self.weights()}

    @classmethod
    def from_dict(cls, line: Line) -> "RecordingFit":
        """From a line of measure.json."""
        names = [one.name for one in fields(Axis)]
        return cls(
            axes=each(line["axes"], lambda row: Axis(**{name: row[name] for name in names})),
            count=int(line["count"]),
            best=int(line["best"]),
            free=np.array(line["free"], float),
            free_gain=number(line["free_gain"]),
            free_p=number(line["free_p"]),
        )
