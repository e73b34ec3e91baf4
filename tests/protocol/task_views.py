"""Stored tasks to write in the format of a wire, and JSON that a hostile client may send instead of valid values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from gateway.tasks.model import Phase, Progress, TaskView, WireQuestion

ERROR = {"code": -32000, "message": "Out of tea", "data": {"left": 0}}
QUESTION = WireQuestion("who", b"digest", "elicitation/create", {"mode": "form", "message": "Who?"})


def block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def result(*texts: str, is_error: bool = False, **fields: Any) -> dict[str, Any]:
    return {"content": [block(text) for text in texts], "isError": is_error, **fields}


QUEUED = TaskView(
    task_id="t_1",
    tool="work",
    phase=Phase.QUEUED,
    created_ms=1_700_000_000_123,
    updated_ms=1_700_000_001_000,
    ended_ms=None,
    expires_ms=1_700_000_060_123,
    ttl_ms=60_000,
    now_ms=1_700_000_010_123,
    generation=0,
    form="ttl",
)
RUNNING = replace(QUEUED, phase=Phase.RUNNING, generation=1)
HANDED_BACK = replace(QUEUED, generation=1)
WAITING = replace(RUNNING, phase=Phase.WAITING, questions={"who~2": QUESTION})
ENDED = replace(RUNNING, ended_ms=1_700_000_005_000)
COMPLETED = replace(ENDED, phase=Phase.DONE, result=result("a", "b"))
ERRED = replace(ENDED, phase=Phase.DONE, result=result("a", "Out of luck", is_error=True))
FAILED = replace(ENDED, phase=Phase.DONE, error=ERROR)
CANCELLED = replace(ENDED, phase=Phase.CANCELLED)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def _finite(largest: float) -> st.SearchStrategy[float]:
    return st.integers(0, int(largest)) | st.floats(0, largest)


progresses = st.builds(Progress, _finite(1e9), st.none() | _finite(1e9), st.none() | st.text(max_size=20))

views = st.builds(
    replace,
    st.sampled_from([QUEUED, RUNNING, HANDED_BACK, WAITING, COMPLETED, ERRED, FAILED, CANCELLED]),
    progress=st.none() | progresses,
    opened=st.just(True),
) | st.sampled_from([QUEUED, RUNNING, HANDED_BACK, WAITING, ENDED, CANCELLED]).map(
    lambda view: replace(view, phase=Phase.DONE if view is ENDED else view.phase, questions={}, opened=False)
)
"""Tasks in every state, with and without progress, and tasks that cannot be read."""
