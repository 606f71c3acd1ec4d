"""Laws of chunks over prefixes and of mixed batches: nothing added or lengthened ever saves time."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from simkv.cost.kernels import chunked_attention, mixed
from simkv.cost.kernels.chunked_attention import TileParameters
from simkv.cost.kernels.mixed import MixedParameters

PEAK, BANDWIDTH, SMS = 400e12, 1.8e12, 188
TILES = st.builds(
    TileParameters,
    floor_s=st.floats(1e-6, 2e-5),
    tile_s=st.floats(1e-7, 1e-5),
    efficiency=st.floats(0.2, 1.0),
    tile_rows=st.sampled_from([64, 128]),
    max_num_splits=st.sampled_from([1, 1, 8]),
)
MIXED = st.builds(
    MixedParameters,
    tiles=TILES,
    tail=st.floats(0.05, 1.0),
    idle_block_s=st.floats(1e-8, 1e-6),
    memory_efficiency=st.floats(0.5, 1.0),
    concurrency=st.floats(0.2, 2.0),
    cache_bytes=st.floats(1e7, 2e8),
)
CHUNK = st.integers(1, 16384)
CONTEXT = st.integers(0, 262144)
HEADS = st.sampled_from([(32, 8), (16, 4), (8, 1), (8, 8), (64, 8)])
CHUNKS = st.lists(st.tuples(CHUNK, CONTEXT), min_size=1, max_size=4)
DECODES = st.lists(st.integers(1, 262144), max_size=200)
REFERENCE = TileParameters(6e-6, 4e-6, 0.56)


def chunk_seconds(p, chunk, context, heads):
    """One KV head, so that its memory does not bind."""
    return chunked_attention.seconds(p, PEAK, BANDWIDTH, SMS, chunk, context, heads, 1, 128)


def batch_seconds(p, chunks, decodes, heads):
    gpu = (PEAK, BANDWIDTH, SMS)
    return mixed.batch_timing(
        p, *gpu, chunks, len(decodes), sum(decodes), max(decodes, default=0), *heads, 128
    ).seconds


@given(p=TILES, chunk=CHUNK, context=CONTEXT, heads=HEADS, more=st.integers(1, 5000))
def test_longer_chunks_and_prefixes_take_longer(p, chunk, context, heads, more):
    seconds = chunk_seconds(p, chunk, context, heads[0])
    assert 0 < seconds < float("inf")
    above = seconds * (1 - 1e-12)
    assert chunk_seconds(p, chunk + more, context, heads[0]) >= above
    assert chunk_seconds(p, chunk, context + more, heads[0]) >= above
    assert chunk_seconds(p, chunk, context, heads[0] + 1) >= above


def alone_seconds(p, chunks, heads):
    return chunked_attention.batch_timing(p, PEAK, BANDWIDTH, SMS, chunks, *heads, 128).seconds


@given(p=TILES, chunks=CHUNKS, heads=HEADS, data=st.data())
def test_chunks_alone_in_a_batch_save_nothing_by_growing(p, chunks, heads, data):
    """At least what `seconds` says of each where keys are not split, and no faster than memory."""
    seconds = alone_seconds(p, chunks, heads)
    at, more = data.draw(st.integers(0, len(chunks) - 1)), data.draw(st.integers(1, 5_000))
    chunk, context = chunks[at]
    above = seconds * (1 - 1e-12)
    for longer in ((chunk + more, context), (chunk, context + more)):
        assert alone_seconds(p, [*chunks[:at], longer, *chunks[at + 1 :]], heads) >= above
    assert alone_seconds(p, [*chunks, (chunk, context)], heads) >= above
    assert alone_seconds(p, chunks, (2 * heads[0], heads[1])) >= above
    assert seconds >= sum(map(sum, chunks)) * heads[1] * 512 / BANDWIDTH
    if p.max_num_splits == 1:
        assert seconds >= chunk_seconds(p, chunk, context, heads[0]) * (1 - 1e-12)
    one = alone_seconds(p, chunks[:1], heads)
    assert one == pytest.approx(chunked_attention.seconds(p, PEAK, BANDWIDTH, SMS, *chunks[0], *heads, 128))


@given(p=MIXED, chunks=CHUNKS, decodes=DECODES, heads=HEADS, data=st.data())
def test_nothing_added_to_a_mixed_batch_saves_time(p, chunks, decodes, heads, data):
    seconds = batch_seconds(p, chunks, decodes, heads)
    assert 0 < seconds < float("inf")
    above = seconds * (1 - 1e-12)
    assert batch_seconds(p, chunks, [*decodes, data.draw(st.integers(1, 262144))], heads) >= above
    assert batch_seconds(p, [*chunks, data.draw(st.tuples(CHUNK, CONTEXT))], decodes, heads) >= above
    at = data.draw(st.integers(0, len(chunks) - 1))
    longer_chunk, longer_context = list(chunks), list(chunks)
    more = data.draw(st.integers(1, 5000))
    longer_chunk[at] = (chunks[at][0] + more, chunks[at][1])
    longer_context[at] = (chunks[at][0], chunks[at][1] + more)
    assert batch_seconds(p, longer_chunk, decodes, heads) >= above
    assert batch_seconds(p, longer_context, decodes, heads) >= above
    if decodes:
        longer = [decodes[0] + more, *decodes[1:]]
        assert batch_seconds(p, chunks, longer, heads) >= above


@given(p=MIXED, chunks=CHUNKS, decodes=DECODES, heads=HEADS)
def test_a_mixed_batch_takes_as_long_as_its_chunks_at_least(p, chunks, decodes, heads):
    whole = batch_seconds(p, chunks, decodes, heads)
    assert whole >= batch_seconds(p, chunks, [], heads) * (1 - 1e-12)


@given(
    p=MIXED, chunk=CHUNK, context=CONTEXT, n=st.integers(0, 256), length=st.integers(1, 99999), heads=HEADS
)
def test_a_batch_of_one_chunk_is_the_closed_form(p, chunk, context, n, length, heads):
    expected = mixed.seconds(p, PEAK, BANDWIDTH, SMS, chunk, context, n, length, *heads, 128)
    assert batch_seconds(p, [(chunk, context)], [length] * n, heads) == pytest.approx(expected, rel=1e-12)


@given(p=MIXED, chunk=CHUNK, context=CONTEXT, heads=HEADS)
def test_a_chunk_alone_is_a_mixed_batch_without_decodes(p, chunk, context, heads):
    assume(p.tiles.max_num_splits == 1)
    binds = 2 * (chunk + context) * heads[1] * 128 * 2 / (p.memory_efficiency * BANDWIDTH)
    alone = chunk_seconds(p.tiles, chunk, context, heads[0])
    together = batch_seconds(p, [(chunk, context)], [], heads)
    assert alone * (1 - 1e-12) <= together <= (alone + binds) * (1 + 1e-12)


@given(
    p=MIXED, rows=st.lists(st.tuples(CHUNK, CONTEXT, st.integers(0, 256), CONTEXT), min_size=1, max_size=5)
)
def test_arrays_give_what_scalars_give(p, rows):
    shape = [np.array(column, float) for column in zip(*rows, strict=True)]
    gpu = (PEAK, BANDWIDTH, SMS)
    expected = [mixed.seconds(p, *gpu, *row, 32, 8, 128) for row in rows]
    np.testing.assert_allclose(mixed.seconds(p, *gpu, *shape, 32, 8, 128), expected, rtol=1e-9)
    chunks = [chunk_seconds(p.tiles, chunk, context, 32) for chunk, context, *_ in rows]
    np.testing.assert_allclose(chunk_seconds(p.tiles, shape[0], shape[1], 32), chunks, rtol=1e-9)


def test_few_tiles_leave_sms_idle():
    """512 tokens of 8 heads fill a third of the SMs: 5 times as many take no longer over a long prefix."""
    small = chunk_seconds(REFERENCE, 512, 131072, 8)
    assert chunk_seconds(REFERENCE, 1280, 131072, 8) == pytest.approx(small, rel=0.02)
    assert chunk_seconds(REFERENCE, 2048, 131072, 8) > 1.9 * small


def test_keys_are_split_among_idle_sms_where_the_kernel_can():
    split = TileParameters(6e-6, 4e-6, 0.56, max_num_splits=4)
    whole, quarter = (chunk_seconds(p, 128, 131072, 8) for p in (REFERENCE, split))
    assert (quarter - 6e-6) == pytest.approx((whole - 6e-6) / 4)
    # 5.4 waves instead of 6
    assert chunk_seconds(split, 8192, 131072, 8) == pytest.approx(
        chunk_seconds(REFERENCE, 8192, 131072, 8) * 1024 / 188 / 6, rel=0.01
    )


def test_a_decode_beside_a_chunk_costs_tiles_of_its_own():
    p = MixedParameters(REFERENCE, 0.5, 4e-7, 1.0, 0.6, 1.2e8)
    alone = batch_seconds(p, [(512, 0)], [], (32, 8))
    assert batch_seconds(p, [(512, 0)], [4096] * 64, (32, 8)) > 10 * alone
