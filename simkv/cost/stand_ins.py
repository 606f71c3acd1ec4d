"""Kernels of PyTorch that stand for vLLM's own where only `simkv collect` has measured.

vLLM's norms add the residual, its activation multiplies gate and up, its rotary embedding works in place: kernels
that PyTorch does not have. One that is launched alike, over as many rows, lends its floor, its rates and its
ratios; the bytes are those of the kernel that it stands for:

    layernorm, final_layernorm   rms_norm, which reads no residual
    act_fn                       glu, which takes a sigmoid for the gate
    rotary_emb                   copy
    embedding                    gather, rows by index
    reshape_and_cache            copy of a token's keys and values, which PyTorch's attention does not write

So no answer is *measured*: it is *interpolated* between the rows and widths of the table, *extrapolated* beyond.
"""

from __future__ import annotations

from dataclasses import replace

from simkv.cost.fitted_batch import Points, RowsTime
from simkv.cost.fitted_collectives import parameters_from
from simkv.cost.kernels import elementwise
from simkv.cost.kernels.elementwise import BYTES_PER_ELEMENT, ElementwiseParameters
from simkv.cost.residual import Residual
from simkv.cost.tally import Kernel, Side
from simkv.spec.calibration import CalibrationSpec
from simkv.step import Provenance

STAND_INS = {
    "layernorm": "rms_norm",
    "final_layernorm": "rms_norm",
    "act_fn": "glu",
    "rotary_emb": "copy",
    "embedding": "gather",
    "reshape_and_cache": "copy",
}


def stand_in(
    calibration: CalibrationSpec, points: Points, bandwidth_bytes_per_s: float, name: str, width: int
) -> RowsTime | None:
    """Time a kernel that moves bytes, by rows of `width` elements; None if nothing stands for it."""
    family = f"elementwise/{STAND_INS.get(name)}"
    if family not in calibration.families:
        return None
    measured: ElementwiseParameters = parameters_from(
        ElementwiseParameters, calibration.families[family].parameters
    )
    own = replace(measured, bytes_per_element=BYTES_PER_ELEMENT[name])
    columns = None if calibration.is_transferred else points.get(family)
    alone = Provenance.EXTRAPOLATED if calibration.is_transferred else Provenance.INTERPOLATED
    residual = None
    if columns is not None:
        shape = [columns["tokens"], columns["width"]]
        ratios = columns["seconds"] / elementwise.seconds(measured, bandwidth_bytes_per_s, *shape)
        residual = Residual.from_points(("tokens", "width"), shape, ratios).fixed(width=width)

    def time(num_rows: int) -> Kernel:
        seconds = elementwise.seconds(own, bandwidth_bytes_per_s, num_rows, width)
        ratio, mark = residual(num_rows) if residual else (1.0, alone)
        mark = Provenance.INTERPOLATED if mark is Provenance.MEASURED else mark
        return Kernel(seconds * ratio, Side.MEMORY, mark)

    return time
