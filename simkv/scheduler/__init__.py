"""vLLM's V1 scheduling rules, one step at a time, without a clock."""

from simkv.scheduler.request import Request, RequestStatus
from simkv.scheduler.scheduler import Scheduler, SchedulerConfig

__all__ = ["Request", "RequestStatus", "Scheduler", "SchedulerConfig"]
