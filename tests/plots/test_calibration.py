"""Pictures of held-out errors: everything within its frame, sizes and units named, files beside the calibration."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from simkv.errors import ResultsError
from simkv.plots.calibration import kernel_errors, save_kernel_errors

mpl.use("Agg")


def points(count, spread=0.05, size="num_bytes"):
    rng = np.random.default_rng(0)
    sizes = 2.0 ** rng.integers(8, 30, count)
    seconds = 1e-6 + sizes / 1e11
    wrong = {name: seconds * np.exp(rng.normal(0, share, count)) for name, share in
             (("physical", 2 * spread), ("residual", spread))}  # fmt: skip
    return pd.DataFrame({size: sizes, "seconds": seconds, **wrong})


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


@pytest.mark.parametrize("count", [1, 17, 5000])
@pytest.mark.parametrize("spread", [0.0, 0.05, 2.0])
def test_everything_lies_within_the_frame(count, spread):
    figure = kernel_errors(points(count, spread), "num_bytes", "imaginary all_reduce")
    figure.canvas.draw()
    frame = figure.bbox
    left, right = figure.axes
    words = [*figure.legends, figure._suptitle, left.xaxis.label, left.yaxis.label, right.xaxis.label]
    boxes = [word.get_window_extent() for word in words]
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 + 1 for box in boxes)
    assert all(frame.y0 <= box.y0 and box.y1 <= frame.y1 + 1 for box in boxes)
    assert not boxes[0].overlaps(boxes[1])
    low, high = right.get_ylim()
    assert low == -high
    assert all(np.abs(line.get_ydata()).max() <= high for line in right.lines)


def test_axes_say_what_and_in_which_unit():
    left, right = kernel_errors(points(100), "num_bytes", "x").axes
    assert (left.get_xlabel(), left.get_ylabel()) == ("measured", "predicted")
    assert left.xaxis.get_major_formatter()(2e-5) == "20 µs"
    assert right.get_xlabel() == "message, bytes"
    assert right.yaxis.get_major_formatter()(0.05) == "5 %"
    assert (
        kernel_errors(points(100, size="m"), "m", "x").axes[1].get_xlabel() == "rows of the product, tokens"
    )


def test_both_predictions_differ_without_colour():
    _, right = kernel_errors(points(20), "num_bytes", "x").axes
    assert len({line.get_marker() for line in right.lines[:2]}) == 2
    _, right = kernel_errors(points(200), "num_bytes", "x").axes
    assert len({line.get_linestyle() for line in right.lines[:4]}) == 3


def test_files_are_named_after_the_calibration(tmp_path):
    groups = [("gemm/fp8", "m", points(30, size="m")), ("all_reduce_nccl", "num_bytes", points(5))]
    files = save_kernel_errors(groups, tmp_path / "mine.yaml", "mine")
    assert [file.name for file in files] == ["mine.gemm_fp8.png", "mine.all_reduce_nccl.png"]
    assert all(file.stat().st_size > 10_000 for file in files)
    assert not plt.get_fignums()
    with pytest.raises(ResultsError, match="cannot be written"):
        save_kernel_errors(groups, tmp_path / "mine.gemm_fp8.png" / "mine.yaml", "mine")
