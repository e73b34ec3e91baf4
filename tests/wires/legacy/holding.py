"""Room for the answers of waiting calls."""

from __future__ import annotations

from gateway.admission.bodies import BodyBudget, HeldBody


def room() -> HeldBody:
    """Return room that a test does not fill."""
    return BodyBudget(2**20, 2**20).hold("ada")
