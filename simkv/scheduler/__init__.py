"""vLLM's V1 scheduling rules, one step at a time, without a clock."""

from simkv.scheduler.config import SchedulerConfig
from simkv.scheduler.request import Request, RequestStatus
from simkv.scheduler.scheduler import Scheduler

__all__ = ["Request", "RequestStatus", "Scheduler", "SchedulerConfig"]
