"""Pure: the deviations of upstreams from the protocol that are healed.

`gateway.upstreams.healing` says why, and which others are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias


class Deviation(StrEnum):
    """How an upstream deviates from the protocol. The values are labels of metrics."""

    MEDIA_TYPE = "media_type"
    BYTE_ORDER_MARK = "byte_order_mark"
    BATCH = "batch"
    ID_TYPE = "id_type"
    NULL_MEMBER = "null_member"
    ERROR_SHAPE = "error_shape"
    ITEMS_MISSING = "items_missing"
    ITEMS_SHAPE = "items_shape"
    STRUCTURED_MISSING = "structured_missing"
    UNSTRUCTURED = "unstructured"
    BLOCK = "block"
    SEVERAL_BLOCKS = "several_blocks"
    ROLE = "role"
    MEDIA_DATA = "media_data"
    MEDIA_KIND = "media_kind"
    URI_MISSING = "uri_missing"
    NAME_MISSING = "name_missing"
    FLAG = "flag"
    MEMBER_TYPE = "member_type"
    CURSOR = "cursor"
    SCHEMA = "schema"
    OUTPUT_SCHEMA = "output_schema"
    CAPABILITIES = "capabilities"


Heal: TypeAlias = Callable[[Deviation], None]
"""Counts a deviation that was healed."""


def uncounted(_deviation: Deviation) -> None:
    """Count nothing."""
