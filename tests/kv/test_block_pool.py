"""The pool alone: order of reuse, conservation, refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simkv.kv import BlockPool


@given(num_gpu_blocks=st.integers(1, 40), data=st.data())
def test_blocks_are_conserved_and_never_handed_out_twice(num_gpu_blocks, data):
    pool = BlockPool(num_gpu_blocks)
    tables = []
    for _ in range(data.draw(st.integers(0, 30))):
        if tables and data.draw(st.booleans()):
            pool.free(tables.pop(data.draw(st.integers(0, len(tables) - 1))))
        else:
            tables.append(pool.allocate(data.draw(st.integers(0, pool.num_free_blocks))))
        held = [block for table in tables for block in table]
        assert len(held) == len(set(held))
        assert sorted(held + pool.free_queue()) == list(range(1, num_gpu_blocks))
        assert pool.num_free_blocks == len(pool.free_queue())
        assert 0 <= pool.usage <= 1


def test_blocks_without_a_hash_are_reused_last_in_first_out():
    pool = BlockPool(8)
    first, second = pool.allocate(3), pool.allocate(2)
    pool.free(first)
    pool.free(second)
    assert pool.free_queue() == [5, 4, 3, 2, 1, 6, 7]


def test_cached_blocks_are_reused_least_recently_freed_first_and_tails_before_heads():
    pool = BlockPool(6)
    table = pool.allocate(5)
    for index, block in enumerate(table[:4]):
        pool.cache(block, ("run", index))
    pool.free(table)
    assert pool.free_queue() == [5, 4, 3, 2, 1]
    assert pool.allocate(2) == [5, 4]
    assert pool.lookup(("run", 3)) is None
    assert pool.lookup(("run", 2)) == 3
    assert pool.cached_blocks() == [1, 2, 3]


def test_of_equal_blocks_the_one_registered_first_is_used_until_it_is_handed_out():
    pool = BlockPool(5)
    first, second, third = pool.allocate(3)
    for block in (first, second, third):
        pool.cache(block, "same")
    assert pool.lookup("same") == first
    pool.free([second, first])
    assert pool.allocate(2) == [4, first]
    assert pool.lookup("same") == second
    pool.touch([second])
    assert pool.num_holders(second) == 1
    pool.free([second])
    assert pool.allocate(1) == [second]
    assert pool.lookup("same") == third


def test_a_hit_takes_a_block_out_of_the_free_queue():
    pool = BlockPool(4)
    (block,) = pool.allocate(1)
    pool.cache(block, "a")
    pool.touch([block])
    assert pool.num_holders(block) == 2
    pool.free([block])
    assert pool.free_queue() == [2, 3]
    pool.free([block])
    assert pool.free_queue() == [2, 3, block]
    assert pool.num_free_among([block]) == 1
    pool.touch([block])
    assert pool.free_queue() == [2, 3]


def test_reset_drops_all_hashes_but_not_while_a_block_is_held():
    pool = BlockPool(4)
    table = pool.allocate(2)
    pool.cache(table[0], "a")
    assert not pool.reset()
    assert pool.lookup("a") == table[0]
    pool.free(table)
    queue = pool.free_queue()
    assert pool.reset()
    assert pool.free_queue() == queue
    assert pool.lookup("a") is None
    assert pool.cached_blocks() == []
    assert pool.allocate(3) == queue


def test_too_many_blocks_are_refused_and_nothing_changes():
    pool = BlockPool(4)
    with pytest.raises(ValueError, match="cannot hand out 4 blocks: 3 are free"):
        pool.allocate(4)
    assert pool.free_queue() == [1, 2, 3]
    assert pool.allocate(0) == []


def test_a_pool_needs_the_null_block():
    with pytest.raises(ValueError, match="at least 1"):
        BlockPool(0)
    assert BlockPool(1).usage == 0.0
