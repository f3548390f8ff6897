"""Engine versions: parsing and order."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.engine import parse_version
from specsim.errors import InputError

IN_ORDER = [
    "0.3.6",
    "v0.4.4",
    "0.4.4.post1",
    "0.4.10.post2",
    "0.5.3rc0",
    "0.5.3",
    "0.5.3.post3",
    "0.5.9.dev3+gabc",
    "0.5.9",
    "0.5.7-0.5.10",  # of a range, the last release
    "0.5.12",
    "0.5.12.post1",
    "0.5.23",
    "0.20.1rc1.dev144+g5737770c6",
    "0.20.1rc1",
    "0.20.1+cu128",
    "1.2.0a1",
    "1.2.0b2",
    "1.2",
    "b4567",
    "main",
]


@pytest.mark.parametrize(("older", "newer"), list(itertools.pairwise(IN_ORDER)))
def test_versions_are_ordered(older: str, newer: str) -> None:
    assert parse_version(older) < parse_version(newer)
    assert parse_version(newer).since(older)
    assert parse_version(older).before(newer)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("0.5", "v0.5.0"),
        ("0.5.9+cu129", "0.5.9"),
        ("main", "nightly"),
        ("0.5.7\u20130.5.10", "0.5.10"),
        ("0.5.4-post1", "0.5.4.post1"),
    ],
)
def test_versions_that_are_the_same(one: str, other: str) -> None:
    assert parse_version(one) == parse_version(other)


@pytest.mark.parametrize("text", ["", "garbage", "0.5.x", "0..5", "0.5.9 or so", "-1", "0.5.9-"])
def test_garbage_is_no_version(text: str) -> None:
    with pytest.raises(InputError, match="is not a version"):
        parse_version(text)


releases = st.lists(st.integers(0, 30), min_size=1, max_size=4)
tails = st.sampled_from(["", "rc1", "a2", ".post1", ".dev3", "rc1.dev3", ".post1.dev3", "+g1a"])
versions = st.builds(lambda r, t: ".".join(map(str, r)) + t, releases, tails)


@given(versions, versions, versions)
def test_order_is_total(a: str, b: str, c: str) -> None:
    x, y, z = parse_version(a), parse_version(b), parse_version(c)
    assert (x < y) + (x == y) + (x > y) == 1
    assert not (x <= y <= z) or x <= z
    assert x.since(b) != x.before(b)


@given(releases)
def test_tails_sort_around_their_release(release: list[int]) -> None:
    text = ".".join(map(str, release))
    ordered = [text + tail for tail in (".dev1", "a1", "b1", "rc1.dev2", "rc1", "", ".post1")]
    parsed = [parse_version(one) for one in ordered]
    assert parsed == sorted(parsed)
    assert parsed[-1] < parse_version(".".join(map(str, [*release[:-1], release[-1] + 1])))
