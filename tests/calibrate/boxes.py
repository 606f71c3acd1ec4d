"""A box of one's own: a backend of `simkv collect` whose kernels take what the shipped H100's forms say.

What the H100's tables do not have, chunks over a prefix, kernels that move bytes and hand-offs, follows laws that
are not simkv's.
"""

from pathlib import Path

import numpy as np

from simkv.calibrate.fit import Calibration
from simkv.calibrate.measurements import SHAPE_COLUMNS
from simkv.calibrate.tables import shipped_points
from simkv.cost.kernels.elementwise import BYTES_PER_ELEMENT
from simkv.load.calibration import find_calibration
from simkv.load.hardware import find_hardware

PEAK, BANDWIDTH = 989e12, 3.35e12


def chunk_over_prefix_s(chunk, context, heads):
    """1.3 times what two thirds of the peak would take for whole tiles of 128 rows; few keys fill no pipeline."""
    rows = -(-chunk // 128) * 128 * heads
    flops = 4 * 128 * rows * (context + chunk / 2)
    return 9e-6 + 1.3 * flops / (0.66 * PEAK) * (1 + 1_500 / (context + chunk))


def move_s(num_bytes, floor_s=3.3e-6):
    """A floor, then a cache of 30 MB that gives way all at once to memory at three quarters of its bandwidth."""
    cached = min(num_bytes, 30e6)
    return floor_s + cached / 5.5e12 + (num_bytes - cached) / (0.75 * BANDWIDTH)


def send_recv_s(num_bytes):
    """A rate that rises with the message."""
    return 14e-6 + num_bytes / (2.6e11 * (num_bytes / (num_bytes + 1e6)) ** 0.3)


class FormsBackend:
    """Times points by forms and laws, with 1 % of noise."""

    device, engine, engine_version = "NVIDIA H100 80GB HBM3", "torch", "2.9.0"

    def __init__(self, num_gpus=8):
        self.num_gpus = num_gpus
        hardware = find_hardware("h100_sxm", with_calibration=False)
        spec = find_calibration("h100_sxm", Path())
        self._forms = Calibration.of(spec, shipped_points("h100_sxm"), hardware)
        self._noise = np.random.default_rng(0)

    def measure(self, points):
        for point in points:
            yield point, self._seconds(point) * float(np.exp(self._noise.normal(0.0, 0.01)))

    def _seconds(self, point):
        sizes = dict(zip(SHAPE_COLUMNS[point.op], point.shape, strict=True))
        if point.op == "send_recv":
            return send_recv_s(sizes["num_bytes"])
        if point.op == "elementwise":
            return move_s(sizes["tokens"] * sizes["width"] * BYTES_PER_ELEMENT[sizes["kernel"]])
        if point.op == "sampler":
            return move_s(sizes["tokens"] * sizes["n"] * 20.0, floor_s=1.5e-5)
        if point.op == "prefill_attention" and sizes["context"]:
            return chunk_over_prefix_s(sizes["chunk"], sizes["context"], sizes["heads"])
        columns = {name: [size] for name, size in sizes.items()}
        name = f"{point.op}_{point.backend}" if point.backend else f"{point.op}/{point.dtype}"
        return float(self._forms.predict(columns, name, with_residual=False)[0])
