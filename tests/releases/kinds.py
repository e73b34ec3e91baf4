"""The kinds of orders: `modern_orders` and `session_orders` fill `KINDS`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tests.releases.account import Order
from tests.releases.buyers import COLOUR, NAME, SIZE, Buyer, Kind, Place

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
ENDED: Final = frozenset({"completed", "failed", "cancelled"})
LEAVING: Final = "The server is about to restart and cannot wait for the answer; call again"
"""The result of a call that waited in a replica when it was replaced (docs/run/upgrading.md)."""

PARTS: Final = 5
UNITS: Final = 60
STOCK: Final = 105
"""More tasks than a page of `tasks/list` has."""

MORE: Final = 300
"""More tools than a page of `tools/list` has; see `tests/releases/tools.py`."""

BOUGHT: Final = frozenset({"look up", "pay"})
COUNTED: Final = frozenset(f"unit {unit}" for unit in range(UNITS))
BUILT: Final = frozenset(f"part {part}" for part in range(PARTS))
KINDS: Final[dict[str, Kind]] = {}
PlaceT = TypeVar("PlaceT", bound=Place)


def kind(
    name: str,
    *steps: str,
    early: frozenset[str] = frozenset(),
    hasty: int = 1,
    asks: bool = True,
) -> Callable[[PlaceT], PlaceT]:
    """Make a function a kind of orders with these side effects."""

    def register(place: PlaceT) -> PlaceT:
        KINDS[name] = Kind(name, place, frozenset(steps), early, hasty, asks)
        return place

    return register


def call(tool: str, order: Order, **arguments: Any) -> dict[str, Any]:
    """Return the parameters of an order's call."""
    return {"name": tool, "arguments": {"order": order.call, **arguments}}


def bought(buyer: Buyer, order: Order) -> list[str]:
    """Return the texts of the result of `buy`."""
    return [f"pay of {order.call}", f"{NAME}, {SIZE}, {COLOUR}, {buyer.receipt(order)}"]


def built(buyer: Buyer, order: Order, parts: int = PARTS) -> list[str]:
    """Return the texts of the result of `build`."""
    return [*(f"part {part} of {order.call}" for part in range(parts)), buyer.receipt(order)]
