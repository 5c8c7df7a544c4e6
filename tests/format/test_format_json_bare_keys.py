"""Large tables with bare numeric keys are read by the standard reader, and mean what the tolerant one would say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.format.json_dialect import dumps, loads

CONTENTS = st.recursive(
    st.integers(-9, 9) | st.text(alphabet="a1,:{\"\\'", max_size=6) | st.none() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.integers(-5, 20) | st.text(alphabet="a1,:{\"'", max_size=5), inner, max_size=4)
    ),
    max_leaves=10,
)


def with_text_keys(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value


@given(CONTENTS)
def test_what_is_written_with_bare_keys_is_read_back(value: object) -> None:
    assert with_text_keys(value) == loads(dumps(value, bare_keys=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a{1:":{1:2,-3 :4}}', {"a{1:": {"1": 2, "-3": 4}}),
        ("{'a,1:':5,2:\"3,4:\"}", {"a,1:": 5, "2": "3,4:"}),
        ('{0:"\\",1:",2:3,}', {"0": '",1:', "2": 3}),
    ],
)
def test_what_looks_like_a_key_inside_a_text_stays_text(text: str, expected: object) -> None:
    assert expected == loads(text)


def test_queues_with_offsets_are_written_as_before() -> None:
    assert dumps({"t@g": {0: 5, 1: 7}, 2: {}, 3: {0: True}}, bare_keys=True) == b'{"t@g":{0:5,1:7},2:{},3:{0:true}}'
