"""Any order of admissions, extensions, hits, preemptions, evictions and resets: laws, and a naive double."""

from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from simkv.kv import BlockPool, KVCacheManager
from tests.kv.naive import NaiveCache

OUT = 1_000_000
# A small alphabet of segments, so that prompts often share, diverge inside blocks, or are cut otherwise.
SEGMENTS = st.tuples(st.sampled_from([0, 3, 100, 104]), st.integers(1, 9))


class CacheMachine(RuleBasedStateMachine):
    """Drives manager and double alike; after every rule they agree and the laws of conservation hold."""

    running = Bundle("running")
    waiting = Bundle("waiting")

    @initialize(
        num_gpu_blocks=st.integers(4, 24),
        block_size=st.sampled_from([1, 2, 4]),
        caching=st.booleans(),
        watermark=st.sampled_from([0.0, 0.2]),
    )
    def start(self, num_gpu_blocks, block_size, caching, watermark):
        self.pool = BlockPool(num_gpu_blocks)
        self.manager = KVCacheManager(self.pool, block_size, 10_000, caching, watermark)
        self.naive = NaiveCache(num_gpu_blocks, block_size, caching)
        self.num_left_free = int(watermark * num_gpu_blocks)
        self.num_requests = 0

    @rule(target=waiting, segments=st.lists(SEGMENTS, min_size=1, max_size=3), quoted=st.booleans())
    def arrive(self, segments, quoted):
        request_id = self.num_requests
        self.num_requests += 1
        if quoted and request_id:  # a later turn quotes an answer
            segments = [*segments, (OUT * request_id, 4)]
        self.manager.add_request(request_id, [*segments, (OUT * (request_id + 1), 500)])
        tokens = [start + i for start, length in segments for i in range(length)]
        return SimpleNamespace(
            request_id=request_id, tokens=tokens, num_tokens=len(tokens), num_computed_tokens=0, num_outputs=0
        )

    @rule(
        target=running,
        request=consumes(waiting),
        share=st.floats(0, 1),
        reserve_full=st.booleans(),
        leave_watermark=st.booleans(),
    )
    def admit(self, request, share, reserve_full, leave_watermark):
        hits = self.manager.get_computed_blocks(request)
        assert hits == self.naive.hits(request.tokens)
        assert len(hits) <= (request.num_tokens - 1) // self.manager.block_size
        num_left = request.num_tokens - len(hits) * self.manager.block_size
        num_new = max(1, round(share * num_left))
        before = self.pool.free_queue(), self.pool.cached_blocks()
        table = self.manager.admit(
            request, hits, num_new, reserve_full=reserve_full, leave_watermark=leave_watermark
        )
        wanted = self.naive.admit(
            request.request_id,
            request.tokens,
            num_new,
            reserve_full=reserve_full,
            num_left_free=self.num_left_free * leave_watermark,
        )
        assert table == wanted
        if table is None:
            assert before == (self.pool.free_queue(), self.pool.cached_blocks())
            self.manager.remove_request(request.request_id)
            return multiple()
        request.num_computed_tokens = len(hits) * self.manager.block_size + num_new
        return request

    @rule(request=running, num_ahead=st.integers(0, 1), num_new=st.integers(1, 12))
    def extend(self, request, num_ahead, num_new):
        """A chunk of known tokens, or (scheduling ahead) one more whose token is not known yet."""
        room = request.num_tokens + num_ahead - request.num_computed_tokens
        if room <= 0 or request.request_id not in self.naive.tables:
            return
        num_new = min(num_new, room)
        before = self.pool.free_queue(), list(self.manager.block_table(request.request_id))
        got = self.manager.allocate_slots(request, num_new)
        num_computed = request.num_computed_tokens + num_new
        assert got == self.naive.extend(request.request_id, request.tokens, num_computed)
        if got is None:
            assert before == (self.pool.free_queue(), self.manager.block_table(request.request_id))
        else:
            request.num_computed_tokens = num_computed

    @rule(request=running)
    def sample(self, request):
        request.tokens.append(OUT * (request.request_id + 1) + request.num_outputs)
        request.num_outputs += 1
        request.num_tokens += 1

    @rule(request=running)
    def cache_late(self, request):
        """A token arrived that completes a block scheduled before."""
        if request.request_id in self.naive.tables:
            num_known = min(request.num_computed_tokens, request.num_tokens)
            if self.manager.enable_prefix_caching:
                self.manager.cache_blocks(request, num_known)
            self.naive.cache(request.request_id, request.tokens[:num_known])

    @rule(target=waiting, request=consumes(running))
    def preempt(self, request):
        self.manager.free(request.request_id)
        self.naive.free(request.request_id)
        request.num_computed_tokens = 0
        return request

    @rule(request=consumes(running))
    def finish(self, request):
        self.manager.free(request.request_id)
        self.manager.remove_request(request.request_id)
        self.naive.free(request.request_id)

    @rule()
    def reset(self):
        assert self.pool.reset() == self.naive.reset()

    @invariant()
    def blocks_are_conserved(self):
        held = {block for table in self.naive.tables.values() for block in table}
        free = self.pool.free_queue()
        assert len(free) == len(set(free)) == self.pool.num_free_blocks
        assert held.isdisjoint(free)
        assert len(held) + len(free) == self.pool.num_usable_blocks
        assert 0 not in held
        assert 0 not in free

    @invariant()
    def the_double_agrees(self):
        assert self.pool.free_queue() == self.naive.free_list
        assert self.pool.cached_blocks() == sorted(self.naive.prefix_of)
        for request_id, table in self.naive.tables.items():
            assert self.manager.block_table(request_id) == table
        for block in range(1, self.pool.num_gpu_blocks):
            assert self.pool.num_holders(block) == self.naive.holders(block)

    @invariant()
    def only_blocks_with_a_hash_are_shared(self):
        for block in range(1, self.pool.num_gpu_blocks):
            if self.pool.num_holders(block) > 1:
                assert block in self.naive.prefix_of


def test_cache_machine():
    run_state_machine_as_test(
        CacheMachine, settings=settings(max_examples=500, stateful_step_count=100, deadline=None)
    )


@pytest.mark.slow
def test_cache_machine_for_long():
    run_state_machine_as_test(
        CacheMachine, settings=settings(max_examples=20_000, stateful_step_count=100, deadline=None)
    )
