"""A box of one's own: a backend of `simkv collect` whose kernels take what the shipped H100's forms say."""

from pathlib import Path

import numpy as np

from simkv.calibrate.fit import Calibration
from simkv.calibrate.measurements import SHAPE_COLUMNS
from simkv.calibrate.tables import shipped_points
from simkv.load.calibration import find_calibration
from simkv.load.hardware import find_hardware


class FormsBackend:
    """Times points by forms, with 1 % of noise; what has no form takes a microsecond."""

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
        columns = {name: [size] for name, size in zip(SHAPE_COLUMNS[point.op], point.shape, strict=True)}
        name = f"{point.op}_{point.backend}" if point.backend else f"{point.op}/{point.dtype}"
        if columns.get("context", [0])[0] and point.op == "prefill_attention":
            columns["chunk"][0] += columns["context"][0]
        if name in self._forms.parameters_ or (point.backend and point.op != "send_recv"):
            return float(self._forms.predict(columns, name, with_residual=False)[0])
        return 1e-6
