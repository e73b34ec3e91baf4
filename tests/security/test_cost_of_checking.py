"""The cost of checking arguments is in proportion to their size, for every schema and every place of an error."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice

import pytest

from tests.integration.fleet import Fleet
from tests.security.costs import (
    ENOUGH,
    EVERY,
    LARGEST,
    MANY_VALUES,
    SIZES,
    Measured,
    Stuck,
    call,
    measured,
    sent_largest,
    text_of,
)
from tests.security.hostile_schemas import PRODUCTS
from tests.security.schema_cases import CASES, Case, Shape

pytestmark = pytest.mark.slow

TOOLS = {"GATEWAY_TOOLS": "tests.security.cost_tools", **MANY_VALUES}


@pytest.fixture(scope="module")
def replica(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    with Fleet(tmp_path_factory.mktemp("costs"), TOOLS, names=["r1"]) as fleet, measured(fleet["r1"]) as replica:
        yield replica


def problems(replica: Measured, case: Case, *, every: bool) -> Iterator[str]:
    """Yield the problems with the checks of one case, smallest sizes first."""
    dear: dict[Shape, float] = {}
    for size in (*SIZES, LARGEST):
        for shape in Shape:
            if size == LARGEST and shape not in sent_largest(dear, every=every):
                continue
            where = f"{case.name}, {shape.value}, {size} bytes"
            arguments = case.arguments(shape, size)
            try:
                sent = partial(call, case.tool, arguments)
                judged = replica.judge(sent, size, call("unchecked", arguments))
            except Stuck:
                replica.revive()
                yield f"{where}: stuck"
                return
            if judged.dear and size == SIZES[-1]:
                dear[shape] = judged.cpu
            if judged.excess is not None:
                yield f"{where}: {judged.excess}"
            fits = text_of(judged.answer) == "fits"
            refusable = case.may_refuse and (case in PRODUCTS or size > SIZES[0])
            if case.judged and fits is not (shape is Shape.VALID) and not (refusable and not fits):
                yield f"{where}: {text_of(judged.answer)[:200]}"


@EVERY
@pytest.mark.parametrize("case", [*CASES, *PRODUCTS], ids=lambda case: case.name)
def test_checking_arguments_costs_what_their_size_deserves(replica: Measured, case: Case, every: bool) -> None:
    found = list(islice(problems(replica, case, every=every), ENOUGH))
    assert not found, "\n".join(found)
