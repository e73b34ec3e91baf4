"""The cost of checking an answer is in proportion to its size, in a call and for a task, on each wire."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import pytest

from tests.security.asked_forms import Asked, InCall, Responded, Updated, asking_replica
from tests.security.costs import ENOUGH, EVERY, LARGEST, SIZES, Measured, Stuck, call, sent_largest
from tests.security.form_cases import FORMS, FormCase
from tests.security.schema_cases import Shape

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with asking_replica(tmp_path_factory.mktemp("costs")) as replica:
        yield replica


def problems(asked: Asked, *, every: bool) -> Iterator[str]:
    """Yield the problems with the checks of one form, smallest sizes first."""
    dear: dict[Shape, float] = {}
    for size in (*SIZES, LARGEST):
        for shape in Shape:
            if size == LARGEST and shape not in sent_largest(dear, every=every):
                continue
            where = f"{asked.case.name}, {asked.kind}, {shape.value}, {size} bytes"
            try:
                content = asked.case.content(shape, size)
                sent = partial(asked.sent, content)
                judged = asked.replica.judge(sent, size, call("unchecked", content))
            except Stuck:
                asked.replica.revive()
                yield f"{where}: stuck"
                return
            if judged.dear and size == SIZES[-1]:
                dear[shape] = judged.cpu
            if judged.excess is not None:
                yield f"{where}: {judged.excess}"
            accepted = asked.accepted(judged.answer)
            refusable = asked.case.may_refuse and size > SIZES[0]
            if accepted is not (shape is Shape.VALID) and not (refusable and not accepted):
                yield f"{where}: {str(judged.answer)[:200]}"


@EVERY
@pytest.mark.parametrize("kind", ["model", "raw"])
@pytest.mark.parametrize("how", [InCall, Updated, Responded], ids=lambda how: how.__name__)
@pytest.mark.parametrize("case", FORMS, ids=lambda case: case.name)
def test_checking_what_was_filled_in_costs_what_its_size_deserves(
    replica: Measured, case: FormCase, how: type[Asked], kind: str, every: bool
) -> None:
    found = list(islice(problems(how(replica, case, kind), every=every), ENOUGH))
    assert not found, "\n".join(found)
