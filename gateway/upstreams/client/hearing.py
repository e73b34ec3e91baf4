"""Notices about a request, for those who want them."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from gateway.protocol.upstream.notices import LOG, PROGRESS, read_log, read_progress
from gateway.protocol.upstream.responses import Notice
from gateway.upstreams.ports import OnHeaders, OnNotice, Questions
from gateway.upstreams.readings import Keep

KINDS: Final = {PROGRESS: "progress", LOG: "log"}
"""The notices about requests, by method, as metrics name them."""


MAX_NOTICE_BYTES: Final = 256 * 1024
"""The largest notice that is passed on. Clients that read slowly do not get large ones in any case."""


class Hearing(msgspec.Struct, frozen=True):
    """Which notices of a request somebody wants, and who takes its questions. Progress carries the `token`."""

    token: int
    on_notice: OnNotice | None
    progress: bool
    log_level: str | None
    on_headers: OnHeaders | None = None
    keep: Keep | None = None
    questions: Questions | None = None

    def takes(self, notice: Notice) -> bool:
        """Pass on progress or a log message if it is wanted, and return whether it is."""
        told: dict[str, Any] | None = None
        if notice.method == PROGRESS and self.progress:
            told = read_progress(notice.params, self.token)
        elif notice.method == LOG and self.log_level is not None:
            told = read_log(notice.params)
        if told is None or self.on_notice is None:
            return False
        self.on_notice(notice.method, told)
        return True
