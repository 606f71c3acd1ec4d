from hypothesis import given
from hypothesis import strategies as st

from simkv.workload import stream

SEEDS = st.integers(0, 2**64)
NAMES = st.text(max_size=20)


def draw(seed: int, name: str) -> list[int]:
    return stream(seed, name).integers(2**62, size=4).tolist()


@given(SEEDS, NAMES)
def test_same_seed_and_name_same_numbers(seed, name):
    assert draw(seed, name) == draw(seed, name)


@given(SEEDS)
def test_names_and_seeds_give_different_streams(seed):
    assert draw(seed, "arrivals") != draw(seed, "prompt_lens")
    assert draw(seed, "arrivals") != draw(seed + 1, "arrivals")


def test_drawing_from_one_stream_leaves_the_others_alone():
    before = draw(0, "arrivals")
    stream(0, "something_new").random(1000)
    assert draw(0, "arrivals") == before


def test_numbers_are_pinned_so_that_results_can_be_reproduced_later():
    assert stream(0, "arrivals").integers(1000, size=5).tolist() == [539, 436, 840, 7, 983]
