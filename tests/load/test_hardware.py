from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from simkv.errors import ScenarioError, SimkvError
from simkv.load.hardware import find_hardware, profiles_dir, shipped_hardware
from simkv.load.shipped import shipped_dir
from simkv.spec.hardware import HardwareSpec, Quantity
from simkv.units import GIB

EXPECTED = [
    "a100_pcie",
    "a100_pcie_nvlink",
    "a100_sxm",
    "a100_sxm_40gb",
    "h100_nvl",
    "h100_pcie",
    "h100_sxm",
    "h200_sxm",
    "l40s",
    "rtx_4090",
    "rtx_pro_6000",
]
KNOWN = f"known: {', '.join(EXPECTED)}"

every_profile = pytest.mark.parametrize("name", EXPECTED)


def quantities(spec: Any, path: str = "") -> Iterator[tuple[str, Quantity]]:
    if isinstance(spec, Quantity):
        yield path, spec
    elif isinstance(spec, BaseModel):
        for field in type(spec).model_fields:
            yield from quantities(getattr(spec, field), f"{path}.{field}".lstrip("."))
    elif isinstance(spec, dict):
        for key, value in spec.items():
            yield from quantities(value, f"{path}.{key}")


def write_variant(folder: Path, text: str, name: str = "mine.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def faults_of(name: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioError) as caught:
        find_hardware(name)
    return caught.value.faults


# Laws of every shipped profile


def test_the_shipped_profiles() -> None:
    assert shipped_hardware() == EXPECTED


@every_profile
def test_a_profile_is_named_and_described_after_its_gpu(name: str) -> None:
    hardware = find_hardware(name)
    assert hardware.name == name
    assert hardware.description.startswith("NVIDIA ")
    assert "\n" not in hardware.description
    family = name.removeprefix("rtx_").split("_", maxsplit=1)[0]
    assert re.search(rf"\b{family}\b", hardware.gpu.name, re.IGNORECASE)
    assert hardware.num_gpus_per_node is None
    assert hardware.num_nodes == 1


@every_profile
def test_every_number_names_its_source(name: str) -> None:
    for path, quantity in quantities(find_hardware(name)):
        assert len(quantity.source) > 5, path
        if quantity.mark == "datasheet":
            assert re.search(r"NVIDIA|PCI Express", quantity.source), path
        if quantity.error is not None:
            assert quantity.mark == "measured", path
            assert 0 < quantity.error < 0.25, path


@every_profile
def test_a_file_says_each_key_once_and_nothing_about_the_number_of_nodes(name: str) -> None:
    text = (profiles_dir() / f"{name}.yaml").read_text(encoding="utf-8")
    top = re.findall(r"^(\w+):", text, re.MULTILINE)
    assert len(top) == len(set(top))
    assert not {"num_gpus_per_node", "num_nodes"} & set(top)
    assert yaml.safe_load(text)["name"] == name


@every_profile
def test_memory_is_the_drivers_figure_below_the_marketing_size(name: str) -> None:
    hardware = find_hardware(name)
    size = re.search(r" (\d+) GB", hardware.description)
    assert size is not None
    memory = hardware.gpu.memory_bytes
    # Marketing gigabytes are binary ones on some cards and decimal on others.
    assert 0.9 * int(size[1]) * 1e9 < memory.value < int(size[1]) * GIB
    assert memory.mark == "measured"


@every_profile
def test_peaks_are_dense_and_double_with_half_the_width(name: str) -> None:
    gpu = find_hardware(name).gpu
    peaks = {dtype: peak.value for dtype, peak in gpu.peak_flops_per_s.items()}
    assert peaks["bfloat16"] == peaks["float16"]
    assert peaks["int8"] > 1.99 * peaks["bfloat16"]  # datasheets round each to four digits
    # Ada (8.9) brought fp8 to the tensor cores, Blackwell (10, 12) four bits.
    generation = tuple(map(int, gpu.compute_capability.split(".")))
    assert ("fp8" in peaks) == (generation >= (8, 9))
    assert ("nvfp4" in peaks) == (generation >= (10, 0))
    if "fp8" in peaks:
        # The L40S datasheet rounds 724 up to 733.
        assert peaks["fp8"] == pytest.approx(2 * peaks["bfloat16"], rel=0.02)


@every_profile
def test_links_agree_with_the_fabric(name: str) -> None:
    hardware = find_hardware(name)
    node = hardware.node
    assert (node.nvlink is None) == (node.fabric == "pcie")
    per_lane = {4: 1.97e9, 5: 3.94e9}[node.pcie.generation]
    assert node.pcie.bandwidth_bytes_per_s.value == pytest.approx(per_lane * node.pcie.lanes, rel=0.01)
    if node.nvlink is not None:
        assert node.nvlink.bandwidth_bytes_per_s.value > 4 * node.pcie.bandwidth_bytes_per_s.value
    assert node.fabric == "nvswitch" or "_sxm" not in name
    assert hardware.network.bandwidth_bytes_per_s.value < node.pcie.bandwidth_bytes_per_s.value
    assert node.max_num_gpus == 8


@every_profile
def test_efficiencies_are_fractions_and_floors_are_microseconds(name: str) -> None:
    hardware = find_hardware(name)
    kernels = hardware.kernels
    for path, quantity in quantities(kernels):
        if "efficiency" in path:
            assert 0.3 < quantity.value <= 1, path
    assert sorted(kernels.collective_bandwidth_efficiency) == [2, 4, 8]
    assert kernels.gemm_fp8_compute_efficiency is None or hardware.has_dtype("fp8")
    assert kernels.gemm_tile_m.value in (64, 128)
    assert 200 < kernels.prefill_attention_half_length_tokens.value < 2000
    assert 1e-6 < hardware.gpu.kernel_launch_s.value < 1e-5
    assert 5e-6 < kernels.decode_attention_floor_s.value < 3e-5
    assert kernels.decode_attention_per_token_s.value < 2e-9
    assert kernels.all_reduce_small_s.value <= kernels.nccl_small_s.value < 5e-5
    assert 2e-7 < kernels.nccl_hop_s.value < 2e-6
    assert 1e-4 < hardware.host.step_s.value < hardware.host.eager_step_s.value
    assert hardware.host.client_round_trip_s.value > 0


def test_cards_of_one_family_in_order() -> None:
    sxm, pcie, nvl, h200 = (find_hardware(n).gpu for n in ("h100_sxm", "h100_pcie", "h100_nvl", "h200_sxm"))
    assert (
        pcie.memory_bytes.value <= sxm.memory_bytes.value < nvl.memory_bytes.value < h200.memory_bytes.value
    )
    assert pcie.hbm_bandwidth_bytes_per_s.value < sxm.hbm_bandwidth_bytes_per_s.value
    assert sxm.hbm_bandwidth_bytes_per_s.value < nvl.hbm_bandwidth_bytes_per_s.value
    assert pcie.num_sms.value < sxm.num_sms.value == h200.num_sms.value
    peaks = [gpu.peak_flops_per_s["bfloat16"].value for gpu in (pcie, nvl, sxm, h200)]
    assert peaks == sorted(peaks)

    small, large = find_hardware("a100_sxm_40gb").gpu, find_hardware("a100_sxm").gpu
    assert small.memory_bytes.value < large.memory_bytes.value / 1.9
    assert small.peak_flops_per_s.keys() == large.peak_flops_per_s.keys()
    assert not find_hardware("a100_sxm").has_dtype("fp8")


def test_figures_that_logs_print() -> None:
    assert find_hardware("h100_sxm").gpu.memory_bytes.value / GIB == pytest.approx(79.19)
    assert find_hardware("rtx_4090").gpu.memory_bytes.value == 25_250_627_584
    assert find_hardware("h100_sxm").gpu.name == "NVIDIA H100 80GB HBM3"
    assert find_hardware("a100_sxm").gpu.name == "NVIDIA A100-SXM4-80GB"


def test_collectives_grow_with_a_switch_and_shrink_where_gpus_share_a_host_bridge() -> None:
    for name in EXPECTED:
        hardware = find_hardware(name)
        by_size = [hardware.collective_efficiency(size) for size in (4, 8)]
        is_switched = hardware.node.fabric == "nvswitch"
        assert by_size == sorted(by_size, reverse=not is_switched), name
        assert hardware.node.pcie.has_peer_to_peer == (name != "rtx_4090")


def test_bridges_change_the_links_and_nothing_else_of_the_card() -> None:
    plain, bridged = find_hardware("a100_pcie"), find_hardware("a100_pcie_nvlink")
    assert plain.gpu == bridged.gpu
    assert plain.host == bridged.host
    assert plain.node.pcie == bridged.node.pcie
    assert bridged.node.nvlink is not None
    assert bridged.node.nvlink.bandwidth_bytes_per_s.value == 300e9


# Names


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("h100_sxm", ("h100_sxm", None, 1, None)),
        ("h100_sxm_x8", ("h100_sxm_x8", 8, 1, 8)),
        ("h100_sxm_2x8", ("h100_sxm_2x8", 8, 2, 16)),
        ("h100_sxm_x1", ("h100_sxm_x1", 1, 1, 1)),
        ("h100_sxm_16x4", ("h100_sxm_16x4", 4, 16, 64)),
        (" H100-SXM-x8 ", ("h100_sxm_x8", 8, 1, 8)),
        ("a100_sxm_40gb", ("a100_sxm_40gb", None, 1, None)),
        ("A100-SXM-40GB-2x8", ("a100_sxm_40gb_2x8", 8, 2, 16)),
        ("rtx_4090_x4", ("rtx_4090_x4", 4, 1, 4)),
    ],
)
def test_a_suffix_fixes_the_number_of_gpus(name: str, wanted: tuple[Any, ...]) -> None:
    hardware = find_hardware(name)
    got = (hardware.name, hardware.num_gpus_per_node, hardware.num_nodes, hardware.num_gpus)
    assert got == wanted


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        (
            "h100_sxn",
            f"hardware: no profile 'h100_sxn'; did you mean 'h100_sxm'?; {KNOWN}, or a .yaml file",
        ),
        (
            "H100-SXN-x8",
            f"hardware: no profile 'H100-SXN-x8'; did you mean 'h100_sxm_x8'?; {KNOWN}, or a .yaml file",
        ),
        ("cerebras", f"hardware: no profile 'cerebras'; {KNOWN}, or a .yaml file"),
        ("", f"hardware: no profile ''; {KNOWN}, or a .yaml file"),
        ("h100_sxm_x0", "hardware: 'h100_sxm_x0': wanted at least one node of at least one GPU"),
        ("h100_sxm_0x8", "hardware: 'h100_sxm_0x8': wanted at least one node of at least one GPU"),
        (
            "h100_sxm_x12",
            "hardware: 'h100_sxm_x12': a node of h100_sxm holds at most 8 GPUs, got 12; use at most 8",
        ),
        (
            "h100_sxm_x16",
            "hardware: 'h100_sxm_x16': a node of h100_sxm holds at most 8 GPUs, got 16; "
            "use at most 8, or 2 nodes: h100_sxm_2x8",
        ),
    ],
)
def test_a_wrong_name_says_what_would_be_right(name: str, fault: str) -> None:
    assert faults_of(name) == (fault,)


# Files


def test_a_file_may_start_from_a_shipped_profile(tmp_path: Path) -> None:
    text = 'like: h100_sxm\ngpu: {memory_bytes: {value: "60 GiB", source: a partition of my card}}\n'
    mine, base = find_hardware(write_variant(tmp_path, text)), find_hardware("h100_sxm")
    assert mine.name == "mine"
    assert mine.gpu.memory_bytes.value == 60 * GIB
    # A quantity is replaced whole: the log's mark must not stick to a number that is not from the log.
    assert mine.gpu.memory_bytes.mark == "datasheet"
    assert mine.replace(name=base.name, gpu=base.gpu) == base


def test_a_file_may_start_from_its_neighbour_and_take_keys_away(tmp_path: Path) -> None:
    write_variant(tmp_path, "like: h100_sxm\nname: bare\nnode: {fabric: pcie, nvlink: null}\n", "base.yml")
    name = write_variant(tmp_path, "like: base.yml\nnum_gpus_per_node: 4\n")
    hardware = find_hardware(name)
    assert (hardware.name, hardware.node.nvlink, hardware.num_gpus) == ("mine", None, 4)


def test_a_file_named_like_its_base_means_the_shipped_one(tmp_path: Path) -> None:
    name = write_variant(tmp_path, "like: h100_sxm\ndescription: mine\n", "h100_sxm.yaml")
    assert find_hardware(name).description == "mine"


def test_a_relative_path_starts_at_the_directory_given(tmp_path: Path) -> None:
    write_variant(tmp_path, "like: l40s\n")
    assert find_hardware("mine.yaml", tmp_path).gpu.name == "NVIDIA L40S"


def test_a_complete_file_needs_no_base(tmp_path: Path) -> None:
    text = (profiles_dir() / "l40s.yaml").read_text(encoding="utf-8")
    assert find_hardware(write_variant(tmp_path, text)) == find_hardware("l40s")


def test_every_fault_of_a_file_is_told_at_once(tmp_path: Path) -> None:
    name = write_variant(
        tmp_path,
        """
like: h100_sxm
gpu:
  memory_bytes: 80
  hbm_bandwidth_bytes_per_s: {value: "3 parsecs", source: a poem}
  num_sms: {value: "many", source: a poem}
  nme: x
node: {fabric: tokenring, max_num_gpus: "8", pcie: {lanes: 0, latency_s: {value: -1, source: a poem}}}
kernels: {gemm_tile_m: {value: 64, source: ""}, gemm_memory_efficiency: {value: 0.8}}
network: null
hots: {}
""",
    )
    assert faults_of(name) == (
        f"{name}:6: gpu.num_sms.value: wanted a number, got 'many'",
        f"{name}:4: gpu.memory_bytes: wanted {{value: …, source: …}}, got 80",
        f"{name}:5: gpu.hbm_bandwidth_bytes_per_s: wanted a number with a unit such as '3.35 TB/s', "
        "got '3 parsecs'",
        f"{name}:7: gpu.nme: unknown key; did you mean 'name'?",
        f"{name}:8: node.max_num_gpus: wanted an integer, got '8'",
        f"{name}:8: node.fabric: wanted nvswitch, nvlink_pairs or pcie, got 'tokenring'",
        f"{name}:8: node.pcie.latency_s: wanted a non-negative number, got -1",
        f"{name}:8: node.pcie.lanes: wanted a number above 0, got 0",
        f"{name}:10: network: missing",
        f"{name}:9: kernels.gemm_memory_efficiency.source: missing",
        f"{name}:9: kernels.gemm_tile_m.source: wanted some text, got ''",
        f"{name}:11: hots: unknown key; did you mean 'host'?",
    )


def test_collective_efficiencies_are_by_group_size(tmp_path: Path) -> None:
    text = """
like: h100_sxm
kernels:
  collective_bandwidth_efficiency:
    4: {value: 0.5, source: mine}
"""
    hardware, base = find_hardware(write_variant(tmp_path, text)), find_hardware("h100_sxm")
    assert [hardware.collective_efficiency(size) for size in (3, 4)] == [0.5, 0.5]
    assert hardware.collective_efficiency(8) == base.collective_efficiency(8)
    name = write_variant(tmp_path, text.replace("4: {value", "four: {value"))
    assert faults_of(name) == (
        f"{name}:5: kernels.collective_bandwidth_efficiency.four: wanted an integer, got 'four'",
    )
    name = write_variant(tmp_path, text.replace("{value: 0.5, source: mine}", "0.5"))
    assert faults_of(name) == (
        f"{name}:5: kernels.collective_bandwidth_efficiency.4: wanted {{value: …, source: …}}, got 0.5",
    )


def test_a_fault_is_told_of_the_file_that_holds_it(tmp_path: Path) -> None:
    text = """
like: h100_sxm
gpu:
  peak_flops_per_s: {fp9: 1}
node:
  nvlink:
    latency_s: {value: 1, sauce: x}
"""
    base = write_variant(tmp_path, text, "base.yaml")
    mine = write_variant(
        tmp_path, "like: base\ngpu: {name: 7}\nnode: {pcie: 8}\nkernels:\n  nccl_hop_s: null\n"
    )
    assert faults_of(mine) == (
        f"{mine}:2: gpu.name: wanted text, got 7",
        f"{base}:4: gpu.peak_flops_per_s.fp9: wanted bfloat16, float16, fp8, int8 or nvfp4, got 'fp9'; "
        "did you mean 'fp8'?",
        f"{base}:4: gpu.peak_flops_per_s.fp9: wanted {{value: …, source: …}}, got 1",
        f"{base}:7: node.nvlink.latency_s.source: missing",
        f"{base}:7: node.nvlink.latency_s.sauce: unknown key; did you mean 'source'?",
        f"{mine}:3: node.pcie: wanted a mapping, got 8",
        f"{mine}:5: kernels.nccl_hop_s: missing",
    )


def test_a_key_that_no_file_says_is_missing_where_its_neighbours_are(tmp_path: Path) -> None:
    complete = (profiles_dir() / "l40s.yaml").read_text(encoding="utf-8")
    name = write_variant(tmp_path, complete.replace("    lanes: 16\n", ""))
    line = complete.splitlines().index("  pcie:") + 1
    assert faults_of(name) == (f"{name}:{line}: node.pcie.lanes: missing",)
    name = write_variant(tmp_path, "like: l40s\nnode: {pcie: {lanes: null}}\n")
    assert faults_of(name) == (f"{name}:2: node.pcie.lanes: missing",)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("\nlike: h100_sxn\n", f":2: like: no profile 'h100_sxn'; did you mean 'h100_sxm'?; {KNOWN}"),
        ("like: 7\n", f":1: like: no profile 7; {KNOWN}"),
        ("like: mine\n", f":1: like: no profile 'mine'; {KNOWN}"),
        ("- 1\n", ":1: wanted a mapping of fields, got [1]"),
        ("", ": the file is empty"),
        ("name: a\nname: b\n", ":2: name: duplicate key, first on line 1; remove one"),
        ("like: l40s\nname: !mine x\n", ":2: name: tags are not allowed, got !mine"),
    ],
)
def test_a_file_that_cannot_be_a_profile(tmp_path: Path, text: str, fault: str) -> None:
    name = write_variant(tmp_path, text)
    (got,) = faults_of(name)
    assert got == f"{name}{fault}"


def test_files_that_are_like_each_other(tmp_path: Path) -> None:
    other = write_variant(tmp_path, "like: mine\n", "other.yaml")
    name = write_variant(tmp_path, "like: other\n")
    assert faults_of(name) == (f"{other}:1: like: 'mine' leads back to itself; take out one 'like'",)


def test_a_file_that_is_not_there_or_not_yaml(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.yaml")
    assert faults_of(missing) == (f"{missing}: no such file",)
    broken = write_variant(tmp_path, "gpu: {name: [\n")
    assert faults_of(broken) == (f"{broken}:2: not YAML: did not find expected node content",)


def test_a_file_cannot_ask_for_more_gpus_than_its_node_holds(tmp_path: Path) -> None:
    name = write_variant(tmp_path, "like: h100_sxm\nnum_gpus_per_node: 9\n")
    assert faults_of(name) == (
        f"hardware: {name!r}: a node of mine holds at most 8 GPUs, got 9; use at most 8",
    )


def test_the_two_homes_of_shipped_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simkv.__path__", [str(tmp_path / "simkv")])
    with pytest.raises(SimkvError, match="the scenarios shipped with simkv are missing"):
        shipped_dir("scenarios")
    (tmp_path / "scenarios").mkdir()
    assert shipped_dir("scenarios") == tmp_path / "scenarios"
    (tmp_path / "simkv" / "data" / "scenarios").mkdir(parents=True)
    assert shipped_dir("scenarios") == tmp_path / "simkv" / "data" / "scenarios"


def test_profiles_are_values() -> None:
    assert isinstance(find_hardware("l40s"), HardwareSpec)
    assert find_hardware("l40s") == find_hardware("l40s")
