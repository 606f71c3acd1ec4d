"""Length distributions of public traces, as quantiles: derived facts, not the traces.

Taken on 2026-11-30 with ``numpy.percentile(…, method="inverted_cdf")`` at `PROBABILITIES`, from

* azure_conv_2023, azure_code_2023: Azure LLM inference trace 2023 (github.com/Azure/AzurePublicDataset,
  CC-BY; Patel et al., Splitwise, ISCA 2024), 19,366 and 8,819 requests;
* mooncake_conversation: the first 3,000 requests of the conversation trace of Mooncake
  (github.com/kvcache-ai/Mooncake, Apache-2.0; Qin et al., FAST 2025).

Drawn linearly between these points, mean lengths come out 0 to 4 % above those of the traces, but outputs of
azure_code_2023 14 % (32 instead of 28 tokens: half of the sum is in the last 10 %).
"""

from __future__ import annotations

from typing import Literal

Side = Literal["prompt", "output"]

PROBABILITIES = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
PRESETS: dict[str, dict[Side, tuple[int, ...]]] = {
    "azure_conv_2023": {
        "prompt": (2, 29, 181, 207, 396, 1020, 1189, 2735, 4083, 4142, 6212, 14050),
        "output": (7, 16, 41, 54, 85, 129, 395, 424, 451, 601, 954, 1000),
    },
    "azure_code_2023": {
        "prompt": (3, 17, 75, 147, 578, 1469, 2745, 5194, 7315, 7436, 7437, 7437),
        "output": (6, 6, 6, 7, 9, 13, 24, 55, 90, 252, 831, 1899),
    },
    "mooncake_conversation": {
        "prompt": (891, 894, 901, 981, 2710, 7985, 17054, 29304, 45135, 94764, 121924, 123192),
        "output": (1, 3, 10, 25, 160, 361, 481, 606, 698, 1079, 2000, 2000),
    },
}


def preset_quantiles(name: str, side: Side) -> dict[float, int]:
    """Return the quantiles of a preset's prompts or outputs."""
    return dict(zip(PROBABILITIES, PRESETS[name][side], strict=True))
