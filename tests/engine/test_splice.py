"""Edits that meet: both stay where they fit side by side; where they touch, both texts are kept whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.splice import BaseGone, Edit, OutOfRange, Overlap, rebase


def edited(
    source: str, version: int, edits: list[Edit], at: int, remove: int, insert: str
) -> tuple[str, int, list[Edit]]:
    edit = Edit(version, version + 1, at, source[at : at + remove], insert)
    return edit.on(source), version + 1, [*edits, edit]


def test_an_edit_on_the_newest_version_is_taken_as_it_is() -> None:
    assert rebase("hello", 3, [], 3, 5, 0, "!").on("hello") == "hello!"


def test_edits_in_two_places_are_both_made() -> None:
    source, version, edits = edited("one two three", 1, [], 0, 3, "ONE AND A HALF")
    assert rebase(source, version, edits, 1, 8, 5, "THREE").on(source) == "ONE AND A HALF two THREE"
    source, version, edits = edited("one two three", 1, [], 8, 5, "3")
    assert rebase(source, version, edits, 1, 0, 3, "1").on(source) == "1 two 3"


@pytest.mark.parametrize(("at", "remove"), [(4, 3), (2, 3), (5, 0), (0, 13)])
def test_edits_that_touch_the_same_text_keep_what_the_second_author_had_in_mind(at: int, remove: int) -> None:
    source, version, edits = edited("one two three", 1, [], 4, 3, "2")
    with pytest.raises(Overlap) as caught:
        rebase(source, version, edits, 1, at, remove, "X")
    assert caught.value.mine == "one two three"[:at] + "X" + "one two three"[at + remove :]


def test_two_insertions_at_one_place_overlap() -> None:
    source, version, edits = edited("", 1, [], 0, 0, "mine")
    with pytest.raises(Overlap):
        rebase(source, version, edits, 1, 0, 0, "yours")


def test_an_unknown_base_and_a_place_outside_are_told_apart() -> None:
    source, version, edits = edited("abc", 5, [], 0, 0, "x")
    with pytest.raises(BaseGone):
        rebase(source, version, edits, 2, 0, 0, "y")
    with pytest.raises(OutOfRange):
        rebase(source, version, edits, 5, 2, 5, "y")


@given(st.text(max_size=20), st.data())
def test_whatever_two_people_type_every_inserted_text_survives(source: str, data: st.DataObject) -> None:
    def any_edit(text: str) -> tuple[int, int, str]:
        at = data.draw(st.integers(0, len(text)))
        return at, data.draw(st.integers(0, len(text) - at)), data.draw(st.text(min_size=1, max_size=5))

    edits: list[Edit] = []
    version, text, inserted = 1, source, []
    for _ in range(data.draw(st.integers(1, 4))):
        at, remove, insert = any_edit(text)
        text, version, edits = edited(text, version, edits, at, remove, insert)
        inserted.append(insert)
    at, remove, insert = any_edit(source)
    before = text
    try:
        edit = rebase(text, version, edits, 1, at, remove, insert)
    except Overlap as overlap:
        assert overlap.mine == source[:at] + insert + source[at + remove :]
    else:
        assert insert in edit.on(text)
        assert edit.off(edit.on(before)) == before
