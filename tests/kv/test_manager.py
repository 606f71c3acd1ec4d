"""The manager: hits, reservations, watermark, and whole or nothing."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.kv import BlockPool, KVCacheManager


def request_of(manager, request_id, segments, num_outputs=0):
    manager.add_request(request_id, [*segments, (10**6 * (request_id + 1), 1000)])
    prompt = sum(length for _, length in segments)
    return SimpleNamespace(request_id=request_id, num_tokens=prompt + num_outputs, num_computed_tokens=0)


def cache_of(num_gpu_blocks=100, block_size=16, **options):
    options = {"max_model_len": 10_000, "enable_prefix_caching": True, **options}
    return KVCacheManager(BlockPool(num_gpu_blocks), block_size, **options)


def serve(manager, request, **options):
    """Admit a request, compute all its tokens at once, free it; return its hits."""
    hits = manager.get_computed_blocks(request)
    options = {"reserve_full": True, "leave_watermark": False, **options}
    num_new = request.num_tokens - len(hits) * manager.block_size
    assert manager.admit(request, hits, num_new, **options) is not None
    manager.free(request.request_id)
    manager.remove_request(request.request_id)
    return hits


@given(num_tokens=st.integers(1, 200), block_size=st.sampled_from([1, 4, 16]))
def test_c17_the_last_token_is_always_computed(num_tokens, block_size):
    """Hits are at most floor((n - 1) / B) blocks, monotone in n; a repeat reaches the bound."""
    manager = cache_of(300, block_size)
    serve(manager, request_of(manager, 0, [(0, num_tokens)]))
    numbers = []
    for length in range(1, num_tokens + 2):
        segments = [(0, min(length, num_tokens)), (5_000, max(0, length - num_tokens))]
        hits = manager.get_computed_blocks(request_of(manager, length, segments))
        assert len(hits) == min((length - 1) // block_size, num_tokens // block_size)
        numbers.append(len(hits))
    assert numbers == sorted(numbers)


def test_prompts_share_exactly_their_common_full_blocks():
    manager = cache_of()
    serve(manager, request_of(manager, 0, [(0, 40), (900, 60)]))
    assert len(serve(manager, request_of(manager, 1, [(0, 40), (900, 8), (500, 60)]))) == 3
    assert len(serve(manager, request_of(manager, 2, [(0, 39), (700, 61)]))) == 2
    assert len(serve(manager, request_of(manager, 3, [(1, 100)]))) == 0


def test_the_same_tokens_in_other_segments_are_the_same_prefix():
    manager = cache_of()
    serve(manager, request_of(manager, 0, [(0, 64)]))
    assert len(manager.get_computed_blocks(request_of(manager, 1, [(0, 10), (10, 30), (40, 25)]))) == 4


def test_equal_tokens_after_different_prefixes_are_different():
    manager = cache_of()
    serve(manager, request_of(manager, 0, [(0, 16), (500, 32)]))
    assert manager.get_computed_blocks(request_of(manager, 1, [(100, 16), (500, 32)])) == []


def test_the_same_tokens_further_on_are_different():
    """After 40 and after 32 tokens of the same run: block 2 of both ends in the second segment."""
    manager = cache_of()
    serve(manager, request_of(manager, 0, [(0, 40), (900, 60)]))
    assert len(manager.get_computed_blocks(request_of(manager, 1, [(0, 32), (900, 60)]))) == 2


def test_a_quoted_answer_is_a_hit():
    manager = cache_of()
    request = request_of(manager, 0, [(0, 20)], num_outputs=30)
    serve(manager, request)
    later = request_of(manager, 1, [(0, 20), (10**6, 30), (400, 10)])
    assert len(manager.get_computed_blocks(later)) == 3


def test_without_caching_nothing_is_found():
    manager = cache_of(enable_prefix_caching=False)
    request = request_of(manager, 0, [(0, 64)])
    serve(manager, request)
    assert manager.get_computed_blocks(request) == []
    assert manager.pool.cached_blocks() == []


def test_a_running_request_takes_blocks_as_its_tokens_need_them():
    manager = cache_of(10)
    request = request_of(manager, 0, [(0, 33)])
    assert manager.admit(request, [], 20, reserve_full=True, leave_watermark=False) == [1, 2]
    request.num_computed_tokens = 20
    assert manager.allocate_slots(request, 12) == []
    assert manager.allocate_slots(request, 13) == [3]
    assert manager.block_table(0) == [1, 2, 3]
    assert manager.block_table(99) == []


@pytest.mark.parametrize(
    ("options", "num_tokens", "is_admitted"),
    [
        ({"reserve_full": True}, 96, True),
        ({"reserve_full": True}, 97, False),
        ({"reserve_full": False}, 97, True),  # only the first chunk must fit
        ({"leave_watermark": True}, 64, True),  # 2 of 9 blocks stay free, one more is held
        ({"leave_watermark": True}, 65, False),
    ],
)
def test_admission_is_whole_or_nothing(options, num_tokens, is_admitted):
    manager = cache_of(10, watermark=0.2)  # 2 of 10 blocks
    holder = request_of(manager, 0, [(0, 48)])
    manager.admit(holder, [], 48, reserve_full=True, leave_watermark=False)
    request = request_of(manager, 1, [(1_000, num_tokens)])
    free_before = manager.pool.free_queue()
    options = {"reserve_full": True, "leave_watermark": False, **options}
    table = manager.admit(request, [], 16, **options)
    assert (table is not None) == is_admitted
    if not is_admitted:
        assert manager.pool.free_queue() == free_before
        assert manager.block_table(1) == []


def test_a_hit_in_the_free_queue_counts_as_needed():
    manager = cache_of(6, block_size=4)
    serve(manager, request_of(manager, 0, [(0, 12)]))
    manager.admit(request_of(manager, 1, [(700, 8)]), [], 8, reserve_full=True, leave_watermark=False)
    repeat = request_of(manager, 2, [(0, 12), (300, 4)])
    hits = manager.get_computed_blocks(repeat)
    assert len(hits) == 3
    # Three blocks are free and are the hits: the fourth block does not fit.
    assert manager.admit(repeat, hits, 4, reserve_full=True, leave_watermark=False) is None
    assert manager.pool.num_free_among(hits) == 3


def test_no_blocks_beyond_max_model_len():
    manager = cache_of(10, max_model_len=40)
    request = request_of(manager, 0, [(0, 100)])
    assert manager.admit(request, [], 100, reserve_full=True, leave_watermark=False) == [1, 2, 3]
    assert manager.pool.cached_blocks() == [1, 2]
