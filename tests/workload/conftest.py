"""Trace files as the tests of their readers write them."""

import pytest

from simkv.errors import TraceError
from simkv.workload import Trace


@pytest.fixture
def trace(tmp_path):
    """Writes a trace file called ``t``."""

    def write(content):
        path = tmp_path / "t"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def faults():
    """The faults of a trace, without the folder it is in."""

    def of(path, read):
        with pytest.raises(TraceError) as caught:
            Trace(path, read)
        assert str(caught.value) == "\n".join(caught.value.faults)
        return [fault.replace(str(path), "t") for fault in caught.value.faults]

    return of
