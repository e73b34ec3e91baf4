"""Pure: characters that are shown as nothing, and that some file systems and servers ignore in names."""

from __future__ import annotations

from typing import Final

IGNORABLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Unicode property Default_Ignorable_Code_Point: shown as nothing, assigned or not. It includes all tags."""
