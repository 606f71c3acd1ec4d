"""From a `WorkloadSpec` and a seed to requests: arrivals, lengths, traces."""

from simkv.workload.prompt import RequestSpec, Segment

__all__ = ["RequestSpec", "Segment"]
