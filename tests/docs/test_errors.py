"""`docs/build/protocol.md` has every error that a gateway returns, and no other."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from gateway import errors
from gateway.errors import RejectReason, RpcError
from gateway.protocol.jsonrpc import error_response
from gateway.web.errors import STATUS_OF_CODE, STATUS_OF_LATER, to_http
from tests.docs.markdown import TOP, rows_of, section_of
from tests.docs.sources import SERVED, files_in, nodes_of

PAGE: Final = "docs/build/protocol.md"
ERRORS: Final = rows_of(section_of(PAGE, "Errors"), 4)
DATA: Final = rows_of(section_of(PAGE, "Errors"), 3)
STATUSES: Final = {int(status) for status, _ in rows_of(section_of(PAGE, "HTTP"), 2) if status.isdigit()}
SAID_WITH_200: Final = {errors.OLD_RESOURCE_NOT_FOUND}
"""Codes of wires on which every error has this status."""
SAID_BEFORE_A_WIRE: Final = {errors.UNKNOWN_SESSION: 404}
"""Codes of refusals that have their status on every wire."""
SAID_BY_OTHERS: Final = {-32000, errors.URL_ELICITATION_REQUIRED}
"""Codes that only upstreams of earlier revisions answer with."""
BOUNDS: Final = {edge for codes in (errors.GATEWAY_CODES, errors.MCP_CODES) for edge in (codes.start, codes.stop)}
"""The ends of the ranges that authors and upstreams cannot use."""


def number(cell: str) -> int:
    return int(cell.replace("\N{MINUS SIGN}", "-"))


def kinds(base: type[RpcError] = RpcError) -> Iterator[type[RpcError]]:
    for kind in base.__subclasses__():
        if kind.__module__ == errors.__name__:
            yield kind
            yield from kinds(kind)


CODES: Final = {kind.__dict__["CODE"] for kind in kinds() if "CODE" in kind.__dict__}


def test_every_code_has_its_row_with_its_status_and_no_other_has() -> None:
    told = {number(code): int(status) for code, status, *_ in ERRORS if code != "any other"}
    assert len(told) == len(ERRORS) - 1
    assert told == {**STATUS_OF_CODE, **STATUS_OF_LATER, **dict.fromkeys(SAID_WITH_200, 200), **SAID_BEFORE_A_WIRE}
    assert told.keys() - SAID_WITH_200 - SAID_BEFORE_A_WIRE.keys() == CODES


def test_the_code_of_an_author_is_told_with_200() -> None:
    assert ("any other", "200") in [row[:2] for row in map(tuple, ERRORS)]
    assert to_http(errors.ProtocolError(17, "no"), 1)[0] == 200


def test_no_code_is_written_anywhere_else() -> None:
    written = {
        -node.operand.value
        for path in files_in(*SERVED)
        for node in nodes_of(path)
        if isinstance(node, ast.UnaryOp)
        and isinstance(node.op, ast.USub)
        and isinstance(node.operand, ast.Constant)
        and isinstance(node.operand.value, int)
        and 31000 <= node.operand.value < 33000
    }
    assert written - CODES - SAID_WITH_200 - SAID_BEFORE_A_WIRE.keys() - SAID_BY_OTHERS - BOUNDS == set()


def refused_with(path: Path) -> Iterator[int]:
    """Find the statuses of a module's refusals before JSON-RPC: numbers, or its own constants."""
    module, *nodes = nodes_of(path)
    assert isinstance(module, ast.Module)
    constants = {
        node.target.id: node.value.value
        for node in module.body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in nodes:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"HttpRefusal", "Refusal"}
        ):
            status = node.args[0]
            if isinstance(status, ast.Attribute):
                continue  # forwarded from where it was found
            value = status.value if isinstance(status, ast.Constant) else constants[ast.unparse(status)]
            assert isinstance(value, int)
            yield value


def test_every_status_has_its_row_and_no_other_has() -> None:
    refused = {status for path in files_in(*SERVED) for status in refused_with(path)}
    assert {401, 404, 503} < refused
    by_code = {*STATUS_OF_CODE.values(), *STATUS_OF_LATER.values()}
    answered = {
        200,
        202,
        204,
        to_http(errors.InsufficientScope(["x"]), None)[0],
        to_http(errors.LeaseLost(cancelled=True), None)[0],
    }
    assert refused | by_code | answered == STATUSES


SAMPLES: Final[list[RpcError]] = [
    errors.InvalidRequestState(RejectReason.EXPIRED),
    errors.ResourceNotFound("a://b"),
    RpcError(errors.OLD_RESOURCE_NOT_FOUND, "Resource not found", {"uri": "a://b"}),
    errors.MissingCapability(("elicitation", "form")),
    errors.UnsupportedVersion(["1"], "1"),
    errors.NotAnswered(errors.Declined("name")),
    errors.Overloaded(),
    errors.ShuttingDown(),
    errors.RateLimited(3),
    errors.TaskStoreDown(),
    errors.WorkersLost(1),
]
ELSEWHERE: Final = {
    (-32602, "inputRequests"): "protocol/draft/first_form.py",
}
"""`data` that is made where the error is raised → the module that makes it."""


def members(error: RpcError) -> Iterator[tuple[int, str]]:
    told: dict[str, Any] = json.loads(error_response(1, error))["error"]
    yield from ((told["code"], name) for name in told.get("data", {}))


def test_every_member_of_data_has_its_row_and_no_other_has() -> None:
    told = {(number(code), name.strip("`")) for codes, name, _ in DATA for code in codes.split(", ")}
    assert told == {member for error in SAMPLES for member in members(error)} | ELSEWHERE.keys()


@pytest.mark.parametrize(("member", "module"), [(name, module) for (_, name), module in ELSEWHERE.items()])
def test_data_that_is_made_elsewhere_is_made_there(member: str, module: str) -> None:
    assert f'"{member}"' in (TOP / "gateway" / module).read_text()


def test_every_error_with_data_of_its_own_is_a_sample() -> None:
    tree = ast.parse((TOP / "gateway/errors.py").read_text())
    giving = {node.name for node in tree.body if isinstance(node, ast.ClassDef) and _gives_data(node)}
    waiting = {kind.__name__ for kind in kinds(errors.NotNow)}  # they have the same data
    assert giving - waiting - {"RpcError", "ProtocolError", "_FixedCode", "NotNow"} == {
        type(error).__name__ for error in SAMPLES
    } - waiting - {"RpcError"}


def _gives_data(kind: ast.ClassDef) -> bool:
    if any(ast.unparse(base) == "AskError" for base in kind.bases):
        return False
    calls = [node for node in ast.walk(kind) if isinstance(node, ast.Call)]
    return any(ast.unparse(call.func) == "super().__init__" and len(call.args) > 1 for call in calls)
