"""From a `WorkloadSpec` and a seed to requests: arrivals, lengths, sessions, traces."""

from simkv.workload.arrivals import arrival_times_ns
from simkv.workload.generate import generate
from simkv.workload.lengths import sample_lengths
from simkv.workload.prompt import RequestSpec, Segment
from simkv.workload.random_dataset import random_requests
from simkv.workload.request_stream import RequestStream
from simkv.workload.rng import stream
from simkv.workload.traces import Trace, TraceRow

__all__ = [
    "RequestSpec",
    "RequestStream",
    "Segment",
    "Trace",
    "TraceRow",
    "arrival_times_ns",
    "generate",
    "random_requests",
    "sample_lengths",
    "stream",
]
