"""``simkv plan``: does it fit, and how much? Answers from the ledger alone, without simulating.

`answer` has the plan itself; `refusal` says why a server would not start, `remedies` what was tried and helps of
the `changes` there are, `binding` what holds the cache down, `table` how it is printed, `suggestion` a length for
the workload, `vary` a table over values, `check` the comparison with a start-up log.
"""

from simkv.planning.answer import Plan, plan, require_lawful, require_simulated
from simkv.planning.suggestion import LengthSuggestion, suggest_max_model_len
from simkv.planning.table import format_ledger, format_suggestion

__all__ = [
    "LengthSuggestion",
    "Plan",
    "format_ledger",
    "format_suggestion",
    "plan",
    "require_lawful",
    "require_simulated",
    "suggest_max_model_len",
]
