"""Robust least squares on the logarithm of predicted over measured seconds, from several starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from simkv.calibrate.measurements import SHAPE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

_SIGNIFICANT_DIGITS = 4  # of a parameter: below the noise, above the differences between machines
_OUTLIER = 0.05  # errors beyond 5 % count linearly, not squared: spikes and dips do not bend a fit


@dataclass(frozen=True)
class Unknown:
    """A parameter to find: where to start, its bounds, and whether to search over its logarithm."""

    start: float
    low: float
    high: float
    log: bool = True


def solve(
    predict: Callable[[dict[str, float]], np.ndarray],
    seconds: np.ndarray,
    unknowns: Mapping[str, Unknown],
    starts: Sequence[Mapping[str, float]] = ({},),
    outlier: float = _OUTLIER,
) -> dict[str, float]:
    """Return the parameters for which `predict` is closest to `seconds`; the same input gives the same output.

    `starts` replace the start of some unknowns, one try each; the best try wins.
    """
    from scipy.optimize import least_squares

    names = list(unknowns)
    log = np.array([unknowns[name].log for name in names])

    def inner(values: np.ndarray) -> np.ndarray:
        return np.where(log, np.log(np.where(log, values, 1.0)), values)

    def outer(point: np.ndarray) -> dict[str, float]:
        values = np.where(log, np.exp(np.where(log, point, 0.0)), point)
        return dict(zip(names, values.tolist(), strict=True))

    low = inner(np.array([unknowns[name].low for name in names]))
    high = inner(np.array([unknowns[name].high for name in names]))
    target = np.log(seconds)
    best = None
    for start in starts:
        first = inner(np.array([start.get(name, unknowns[name].start) for name in names]))
        found = least_squares(
            lambda point: np.log(predict(outer(point))) - target,
            np.clip(first, low + 1e-9, high - 1e-9),
            bounds=(low, high),
            loss="soft_l1",
            f_scale=outlier,
            x_scale="jac",
            max_nfev=300,
        )
        if best is None or found.cost < best.cost:
            best = found
    assert best is not None
    return outer(best.x)


def medians(frame: pd.DataFrame, op: str) -> pd.DataFrame:
    """One row a shape: the median of its measurements."""
    columns = list(SHAPE_COLUMNS[op])
    return frame.groupby(columns, sort=True)["seconds"].median().reset_index()


def rounded(parameters: Any) -> Any:
    """Return a form's parameters to four significant digits, those within them too."""
    return replace(
        parameters, **{each.name: _rounded(getattr(parameters, each.name)) for each in fields(parameters)}
    )


def _rounded(value: Any) -> Any:
    if is_dataclass(value):
        return rounded(value)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value
