"""Accounts of small worlds, added up in the ways the tests ask for."""

from simkv.results.bubbles import StageTables, stage_accounts
from simkv.results.bubbles_history import CAUSES
from simkv.step import StepTime
from tests.engine.worlds import UnitCost, simulation_of


class FlatCost(UnitCost):
    """A microsecond a batch on each stage, however many tokens: all batches are alike."""

    def stage_times(self, shape):
        seconds = [1e-6 * self.slow.get(stage, 1) for stage in range(self.num_stages)]
        return tuple(StepTime(compute_s=s, assumed_input_s=s) for s in seconds)


class PromptCost(UnitCost):
    """A microsecond a decode and two hundred, or another number, a prompt token on each stage."""

    def __init__(self, num_stages, prompt_factor=200):
        super().__init__(num_stages)
        self.prompt_factor = prompt_factor

    def stage_times(self, shape):
        seconds = 1e-6 * (shape.num_decodes + self.prompt_factor * shape.num_prefill_tokens)
        return (StepTime(compute_s=seconds, assumed_input_s=seconds),) * self.num_stages


class TokenCost(UnitCost):
    """A microsecond a token on each stage, without padding to graph sizes."""

    def stage_times(self, shape):
        seconds = [1e-6 * shape.num_tokens * self.slow.get(stage, 1) for stage in range(self.num_stages)]
        return tuple(StepTime(compute_s=s, assumed_input_s=s) for s in seconds)


def accounts_of(log):
    return stage_accounts(StageTables.from_log(log))


def idle_of(log):
    """Idle nanoseconds by cause, over all stages and replicas, causes of nothing left out."""
    totals = dict.fromkeys(CAUSES, 0)
    for account in accounts_of(log):
        for cause, ns in account.idle_ns.items():
            totals[cause] += ns
    return {cause: ns for cause, ns in totals.items() if ns}


def run(requests, **options):
    return simulation_of(requests, **{"num_gpu_blocks": 4000, **options}).run()
