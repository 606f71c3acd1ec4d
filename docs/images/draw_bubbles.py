"""Draw the pictures of docs/bubbles.md: small worlds in which one cause of idle time stands out.

python docs/images/draw_bubbles.py      (from the root of the repository)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from simkv.plots.gantt import gantt
from simkv.plots.style import style
from simkv.results.bubbles_history import CAUSE_NAMES
from simkv.results.results import Results
from tests.engine.bubbles import FlatCost, PromptCost, run
from tests.engine.worlds import UnitCost, requests_of

FOLDER = Path(__file__).parent
ALIKE = requests_of([(0, 4, 30)] * 16)  # four batches of four requests that decode

# cause: (the run, the first batch drawn, how many)
WORLDS = {
    "fill_drain": (lambda: run(requests_of([(0, 96, 1)]), pp=4), 0, 6),
    "stage_imbalance": (lambda: run(ALIKE, pp=4, max_num_seqs=16, cost=UnitCost(4, slow={1: 1.5})), 40, 12),
    "chunk_imbalance": (
        lambda: run(
            requests_of([(0, 4, 30)] * 16 + [(300_000, 12, 1)]), pp=4, max_num_seqs=17, cost=PromptCost(4, 1.5)
        ),
        40,
        14,
    ),
    "transfer": (lambda: run(ALIKE, pp=4, max_num_seqs=16, cost=UnitCost(4, transfer_s=1.5e-6)), 40, 12),
    "host": (lambda: run(ALIKE, pp=4, max_num_seqs=16, cost=UnitCost(4, host_s=5e-6)), 40, 12),
    "token_dependency": (lambda: run(requests_of([(0, 4, 30)] * 4), pp=4), 10, 4),
    "too_few_requests": (lambda: run(requests_of([(0, 1, 30)] * 2), pp=4, max_num_batched_tokens=1), 10, 6),
    "max_num_seqs": (
        lambda: run(requests_of([(0, 1, 30)] * 30), pp=4, max_num_batched_tokens=1, max_num_seqs=3),
        30,
        9,
    ),
    "kv_limited": (
        lambda: run(
            requests_of([(0, 60, 20)] * 12), pp=4, max_num_batched_tokens=60, cost=FlatCost(4), num_gpu_blocks=45,
            max_model_len=80,
        ),
        60,
        8,
    ),
    "no_work": (lambda: run(requests_of([(0, 16, 1), (0, 16, 1), (150_000, 16, 1)]), pp=4), 0, 3),
}  # fmt: skip


def main() -> None:
    """Draw each world into a file of its own beside this one."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    for cause, (make, first, number) in WORLDS.items():
        with style():
            ax = plt.subplots(figsize=(6.4, 1.9))[1]
            gantt(Results(make(), {"name": cause}), ax, first, number)
            ax.set_title(CAUSE_NAMES[cause], loc="left")
            for text in list(ax.texts):
                text.remove()
            ax.figure.savefig(FOLDER / f"bubbles_{cause}.png", dpi=110)
            plt.close(ax.figure)


if __name__ == "__main__":
    main()
