"""Hardware profiles: a name or a YAML file → `HardwareSpec`.

A name may carry the number of GPUs: ``h100_sxm`` takes what the layout needs in one node, ``h100_sxm_x8`` is
one node of 8, ``h100_sxm_2x8`` two nodes of 8. A profile may start from another: ``like: h100_sxm`` takes
everything from there that the file does not say itself; ``null`` takes a key away. ``calibration: NAME`` names a
calibration, shipped or beside the profile, or several of other engine versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from simkv.errors import ScenarioError, did_you_mean
from simkv.load.calibration import find_calibration
from simkv.load.document import Document, KeyPath, read_document
from simkv.load.faults import faults_of, shown
from simkv.load.shipped import shipped_dir
from simkv.spec.calibration import CalibrationSpec
from simkv.spec.hardware import HardwareSpec

# what makes it another GPU than the one whose kernels were measured
_SPEED = {"name", "compute_capability", "num_sms", "hbm_bandwidth_bytes_per_s", "peak_flops_per_s"}
_SUFFIXES = (".yaml", ".yml")
_NUM_GPUS = re.compile(r"(?P<base>.+)_(?P<num_nodes>[0-9]*)x(?P<num_gpus_per_node>[0-9]+)")


def profiles_dir() -> Path:
    """Return the folder of the shipped profiles."""
    return shipped_dir("hardware_profiles")


def shipped_hardware() -> list[str]:
    """Return the names of the shipped profiles, sorted."""
    return sorted(path.stem for path in profiles_dir().glob("*.yaml"))


def find_hardware(name: str, directory: Path | None = None, with_calibration: bool = True) -> HardwareSpec:
    """Return a shipped profile by its name, or the one in a ``.yaml`` file.

    Names ignore case and take hyphens for underscores; a suffix ``_x8`` or ``_2x8`` fixes the GPUs of a node
    and the nodes. A relative path starts at `directory`, by default the working directory. Without
    `with_calibration` the one that it names need not exist yet.

    Raises ScenarioError for an unknown name, a wrong file, or more GPUs than a node holds.
    """
    if name.lower().endswith(_SUFFIXES):
        hardware = _load(Path(name) if directory is None else directory / name, with_calibration)
        _check_num_gpus(hardware, name, hardware.num_gpus_per_node)
        return hardware

    wanted = name.strip().lower().replace("-", "_")
    shipped = shipped_hardware()
    if wanted in shipped:
        return _load(profiles_dir() / f"{wanted}.yaml", with_calibration)

    match = _NUM_GPUS.fullmatch(wanted)
    if match is None or match["base"] not in shipped:
        raise _unknown(name, wanted, shipped)
    hardware = _load(profiles_dir() / f"{match['base']}.yaml", with_calibration)
    num_nodes = int(match["num_nodes"] or 1)
    num_gpus_per_node = int(match["num_gpus_per_node"])
    if num_nodes < 1 or num_gpus_per_node < 1:
        raise ScenarioError(f"hardware: {name!r}: wanted at least one node of at least one GPU")
    _check_num_gpus(hardware, name, num_gpus_per_node)
    return hardware.replace(name=wanted, num_gpus_per_node=num_gpus_per_node, num_nodes=num_nodes)


def _unknown(name: str, wanted: str, shipped: Sequence[str]) -> ScenarioError:
    match = _NUM_GPUS.fullmatch(wanted)
    hint = did_you_mean(wanted, shipped)
    if match is not None:
        suffix = wanted.removeprefix(match["base"])
        hint = did_you_mean(wanted, [base + suffix for base in shipped])
    return ScenarioError(f"hardware: no profile {name!r}{hint}; known: {', '.join(shipped)}, or a .yaml file")


def _check_num_gpus(hardware: HardwareSpec, name: str, num_gpus_per_node: int | None) -> None:
    most = hardware.node.max_num_gpus
    if num_gpus_per_node is None or num_gpus_per_node <= most:
        return
    remedy = f"use at most {most}"
    if num_gpus_per_node % most == 0:
        base = hardware.name.removesuffix(f"_x{num_gpus_per_node}")
        remedy += f", or {num_gpus_per_node // most} nodes: {base}_{num_gpus_per_node // most}x{most}"
    raise ScenarioError(
        f"hardware: {name!r}: a node of {hardware.name} holds at most {most} GPUs, "
        f"got {num_gpus_per_node}; {remedy}"
    )


def _load(path: Path, with_calibration: bool) -> HardwareSpec:
    """Read a profile and those it is ``like``, and validate the sum; every fault becomes one line."""
    chain = list(_read_chain(path))
    fields: dict[str, Any] = {}
    for document in reversed(chain):
        fields = _merge(fields, document.value)
    fields.pop("like", None)
    # A variant that forgot its name must not pass for the profile it started from.
    fields["name"] = chain[0].value.get("name", path.stem)
    if not with_calibration:
        fields.pop("calibration", None)
    elif fields.get("calibration") is not None:
        fields["calibration"], *others = _calibrations(fields["calibration"], chain)
        fields["other_calibrations"] = tuple(others)
    try:
        return HardwareSpec.model_validate(fields)
    except ValidationError as error:
        raise ScenarioError(faults_of(error, HardwareSpec, (), lambda keys: _where(keys, chain))) from None


def _gpu_of(document: Document) -> Mapping[str, Any]:
    gpu = document.value.get("gpu")
    return gpu if isinstance(gpu, dict) else {}


def _calibrations(names: Any, chain: Sequence[Document]) -> list[CalibrationSpec]:
    """Read what ``calibration:`` names; another GPU than the one it was found for takes part of it over."""
    owner = next(index for index, document in enumerate(chain) if "calibration" in document.value)
    place = f"{chain[owner].where(('calibration',))}: calibration"
    wanted = names if isinstance(names, list) else [names]
    if not wanted or not all(isinstance(name, str) for name in wanted):
        raise ScenarioError(f"{place}: wanted the name of one, or a list of names, got {shown(names)}")
    is_transferred = any(not _SPEED.isdisjoint(_gpu_of(document)) for document in chain[:owner])
    directory = Path(chain[owner].source).parent
    return [
        find_calibration(name, directory, place).replace(is_transferred=is_transferred) for name in wanted
    ]


def _read_chain(path: Path) -> Iterator[Document]:
    """Yield the profile, the one it is like, and so on."""
    seen = {path.resolve()}
    while True:
        document = read_document(path)
        if not isinstance(document.value, dict):
            raise ScenarioError(
                f"{document.where(())}: wanted a mapping of fields, got {shown(document.value)}"
            )
        yield document
        like = document.value.get("like")
        if like is None:
            return
        path = _find_base(document, path, like)
        if path.resolve() in seen:
            place = document.where(("like",))
            raise ScenarioError(f"{place}: like: {like!r} leads back to itself; take out one 'like'")
        seen.add(path.resolve())


def _find_base(document: Document, path: Path, like: Any) -> Path:
    """Return the file that ``like`` names: a neighbour of `path`, else a shipped profile."""
    shipped = shipped_hardware()
    if isinstance(like, str):
        base = path.parent / (like if like.endswith(_SUFFIXES) else f"{like}.yaml")
        if base.exists() and base.resolve() != path.resolve():
            return base
        if like in shipped:
            return profiles_dir() / f"{like}.yaml"
    hint = did_you_mean(str(like), shipped)
    place = document.where(("like",))
    raise ScenarioError(f"{place}: like: no profile {shown(like)}{hint}; known: {', '.join(shipped)}")


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `changes` laid over it, mapping by mapping; None takes a key away."""
    merged = dict(base)
    for key, change in changes.items():
        current = merged.get(key)
        if change is None:
            merged.pop(key, None)
        elif _is_table(change) and isinstance(current, dict):
            merged[key] = _merge(current, change)
        else:
            merged[key] = change
    return merged


def _is_table(value: Any) -> bool:
    """True for what is merged key by key.

    A quantity is not: it is replaced whole, so that a new value does not keep the old one's source.
    """
    return isinstance(value, dict) and "value" not in value


def _where(keys: KeyPath, chain: Sequence[Document]) -> str:
    """Return file and line of what the merged fields hold at `keys`.

    That is the first file that says them or replaces something above them; for a key that none says, the
    file that says most of the way to it, the profile itself rather than its base.
    """
    path = tuple(map(str, keys))  # group sizes are numbers in a spec and text in a document
    depths: list[int] = []
    for document in chain:
        here: Any = document.value
        depth = 0
        while depth < len(path) and isinstance(here, dict) and path[depth] in here:
            here = here[path[depth]]
            depth += 1
        if depth == len(path) or not _is_table(here):
            return document.where(path)
        depths.append(depth)
    return chain[depths.index(max(depths))].where(path)
