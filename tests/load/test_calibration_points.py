"""Points of a calibration: what a file that is none is told."""

import pandas as pd
import pytest

from simkv.errors import ScenarioError
from simkv.load.calibration import read_points


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda path: None, "cannot be read: No such file"),
        (lambda path: path.write_bytes(b"PAR1, or not"), "cannot be read: Parquet magic bytes not found"),
        (lambda path: pd.DataFrame({"op": ["gemm"]}).to_parquet(path), "got no seconds"),
        (lambda path: pd.DataFrame({"m": [1]}).to_parquet(path), "got no op and no seconds"),
    ],
)
def test_a_file_without_points_is_refused_by_name(write, said, tmp_path):
    path = tmp_path / "mine.parquet"
    write(path)
    with pytest.raises(ScenarioError, match=said) as caught:
        read_points(path)
    assert str(caught.value).startswith(f"{path}: ")
