"""Collectives: the ring law, monotony, and which kernel vLLM would take."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.cost import CostModel
from simkv.cost.collectives import CUSTOM_ALL_REDUCE_MAX_BYTES, Collectives, send_recv_s
from simkv.load.hardware import shipped_hardware
from simkv.units import MIB
from tests.cost.worlds import hardware_of, scenario_of, shape_of

every_profile = pytest.mark.parametrize("hardware", shipped_hardware())
group_sizes = st.sampled_from((2, 3, 4, 6, 8, 16))
message_bytes = st.one_of(st.integers(1, 64 * 1024), st.integers(1, 600 * MIB))


def group_of(hardware, num_ranks, disable_custom_all_reduce=False, num_gpus_per_node=8):
    return Collectives(hardware_of(hardware), num_ranks, num_gpus_per_node, disable_custom_all_reduce)


@every_profile
@given(num_ranks=group_sizes, num_bytes=message_bytes, extra=message_bytes)
def test_a_larger_message_never_takes_less_time(hardware, num_ranks, num_bytes, extra):
    for disabled in (False, True):
        group = group_of(hardware, num_ranks, disabled)
        for call in (
            lambda size, group=group: group.all_reduce(size, in_graph=True),
            lambda size, group=group: group.all_reduce(size, in_graph=False),
            group.all_gather,
            group.reduce_scatter,
        ):
            assert call(num_bytes + extra).seconds >= call(num_bytes).seconds > 0


@every_profile
@given(num_ranks=group_sizes, num_bytes=message_bytes)
def test_an_all_reduce_without_a_graph_is_never_faster(hardware, num_ranks, num_bytes):
    group = group_of(hardware, num_ranks)
    assert group.all_reduce(num_bytes, False).seconds >= group.all_reduce(num_bytes, True).seconds


@every_profile
@given(num_ranks=group_sizes, num_bytes=st.integers(8, 256).map(lambda n: n * MIB))
def test_an_all_reduce_moves_what_a_reduce_scatter_and_an_all_gather_move(hardware, num_ranks, num_bytes):
    """Of what grows with the message; the floors differ, for one kernel is launched instead of two."""
    group = group_of(hardware, num_ranks)

    def growth(call):
        return call(2 * num_bytes).seconds - call(num_bytes).seconds

    both = growth(group.reduce_scatter) + growth(group.all_gather)
    assert growth(lambda size: group.all_reduce(size, in_graph=True)) == pytest.approx(both, rel=1e-6)


@every_profile
def test_one_rank_alone_does_not_communicate(hardware):
    group = group_of(hardware, 1)
    for call in (group.all_gather, group.reduce_scatter, lambda size: group.all_reduce(size, in_graph=True)):
        assert call(64 * MIB).seconds == 0


@pytest.mark.parametrize(
    ("hardware", "num_ranks", "num_bytes", "is_custom"),
    [
        ("h100_sxm", 2, 32 * 1024, True),
        ("h100_sxm", 4, 32 * 1024, True),
        ("h100_sxm", 8, 32 * 1024, True),
        ("a100_sxm", 8, CUSTOM_ALL_REDUCE_MAX_BYTES - 16, True),
        ("a100_sxm", 8, CUSTOM_ALL_REDUCE_MAX_BYTES, False),
        ("h100_sxm", 2, 16 * MIB, False),
        ("h100_sxm", 3, 32 * 1024, False),
        ("h100_sxm", 5, 32 * 1024, False),
        ("h100_sxm", 7, 32 * 1024, False),
        ("h100_sxm", 16, 32 * 1024, False),  # over two nodes
        ("l40s", 2, 32 * 1024, True),  # two PCIe GPUs are allowed …
        ("l40s", 4, 32 * 1024, False),  # … more are not
        ("l40s", 8, 32 * 1024, False),
        ("rtx_4090", 2, 32 * 1024, False),  # no peer-to-peer access
        ("h100_nvl", 2, 32 * 1024, True),  # a bridged pair
        ("h100_nvl", 4, 32 * 1024, False),  # two bridged pairs are not all connected
    ],
)
def test_the_custom_kernel_is_taken_where_vllm_takes_it(hardware, num_ranks, num_bytes, is_custom):
    allowed, disabled = (
        group_of(hardware, num_ranks, disable).all_reduce(num_bytes, in_graph=True).seconds
        for disable in (False, True)
    )
    assert (allowed < disabled) == is_custom
    assert is_custom or allowed == disabled


def test_eight_pcie_cards_are_slower_than_four():
    """Rings share the host bridges."""
    for hardware in ("l40s", "rtx_pro_6000", "rtx_4090", "h100_pcie"):
        eight, four = (group_of(hardware, n).all_reduce(64 * MIB, False).seconds for n in (8, 4))
        assert eight > four


def test_a_group_over_two_nodes_is_slower_than_within_one():
    """Eight ranks, four on each node: the network is slower than NVLink, but only a share crosses it."""
    within, across = (group_of("h100_sxm", 8, num_gpus_per_node=n) for n in (8, 4))
    for num_bytes in (32 * 1024, 64 * MIB):
        assert across.all_reduce(num_bytes, False).seconds > within.all_reduce(num_bytes, False).seconds


@every_profile
@given(num_bytes=message_bytes, extra=message_bytes, crosses=st.booleans())
def test_a_hand_off_grows_with_its_bytes(hardware, num_bytes, extra, crosses):
    spec = hardware_of(hardware)
    assert send_recv_s(spec, num_bytes + extra, crosses) > send_recv_s(spec, num_bytes, crosses) > 0


@pytest.mark.parametrize(
    "shape", [shape_of([4_096] * 32), shape_of([], [(8_192, 0)])], ids=["decode", "prefill"]
)
def test_a_network_twice_as_fast_hardly_changes_a_pipeline_over_two_nodes(shape):
    """Case: 70B, PP2 over two nodes at 400 and 800 Gb/s gives the same tokens per second."""
    scenario = scenario_of("Llama-3.1-70B", "h100_sxm_2x8", 8, 2)
    bandwidth = scenario.hardware.network.bandwidth_bytes_per_s
    assert bandwidth.value == 400e9 / 8
    twice = {"network": {"bandwidth_bytes_per_s": {"value": 2 * bandwidth.value}}}
    slow, fast = CostModel(scenario), CostModel(scenario.replace(hardware=twice))
    seconds = slow.step_time(shape).total_s
    assert seconds * 0.997 < fast.step_time(shape).total_s < seconds
    assert max(slow.transfers_s(shape)) < 0.01 * seconds
