"""The names that logs give to GPUs, and the shipped profiles with their memory."""

from __future__ import annotations

import re

_PROFILES = (  # most special first
    (r"H100 NVL", "h100_nvl"),
    (r"H100 PCIe", "h100_pcie"),
    (r"H100", "h100_sxm"),
    (r"H200", "h200_sxm"),
    (r"A[18]00.*80 ?G|A800", "a100_sxm"),
    (r"A100.*40 ?G", "a100_sxm_40gb"),
    (r"\bL40S?\b", "l40s"),  # both have 48 GB
    (r"\b4090\b(?! D)", "rtx_4090"),
    (r"RTX PRO 6000", "rtx_pro_6000"),
)


def profile_of_gpu(name: str) -> str | None:
    """Return the shipped profile of a GPU's name, as drivers or files spell it; None if there is none.

    >>> profile_of_gpu("NVIDIA_H100_80GB_HBM3"), profile_of_gpu("Tesla T4")
    ('h100_sxm', None)
    """
    spaced = name.replace("_", " ")
    return next((profile for pattern, profile in _PROFILES if re.search(pattern, spaced, re.I)), None)
