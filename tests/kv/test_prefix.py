"""Names of prefixes: two blocks have one hash exactly if all tokens up to their ends are the same."""

from hypothesis import given
from hypothesis import strategies as st

from simkv.kv.prefix import PrefixNames, TokenRuns

BLOCK = 2
# few first ids and lengths, so that prompts share prefixes, middles and ends
PROMPTS = st.lists(st.tuples(st.sampled_from([0, 2, 100, 102, 200]), st.integers(1, 4)), max_size=4)


def hashes_of(names, segments):
    runs, tokens = TokenRuns(names), []
    for start, length in segments:
        runs.append(start, length)
        tokens += range(start, start + length)
    num_blocks = len(tokens) // BLOCK
    prefixes = [tuple(tokens[: (block + 1) * BLOCK]) for block in range(num_blocks)]
    return list(zip(prefixes, runs.block_hashes(0, num_blocks, BLOCK), strict=True))


def test_the_same_tokens_after_others_are_another_block():
    names = PrefixNames()
    first, second = hashes_of(names, [(0, 2), (100, 4)]), hashes_of(names, [(200, 2), (100, 4)])
    assert not {found for _, found in first} & {found for _, found in second}


def test_the_same_tokens_later_are_another_block():
    names = PrefixNames()
    first, second = hashes_of(names, [(0, 2), (100, 4)]), hashes_of(names, [(0, 4), (100, 4)])
    assert first[0] == second[0]
    assert not {found for _, found in first[1:]} & {found for _, found in second[1:]}


@given(st.lists(PROMPTS, min_size=2, max_size=5))
def test_hashes_are_equal_where_prefixes_are(prompts):
    names = PrefixNames()
    found = [pair for segments in prompts for pair in hashes_of(names, segments)]
    for prefix, block_hash in found:
        for other_prefix, other_hash in found:
            assert (block_hash == other_hash) == (prefix == other_prefix)
