"""A browser without a window: it opens a page and follows redirects, with cookies, back to the client.

Usage: browser.py URL. It returns at once, as a browser's command does, and continues in a separate process.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
import urllib.error
import urllib.request
from http.cookiejar import CookieJar

SECONDS = 30


class Patient(urllib.request.HTTPHandler):
    """Waits for servers that do not listen yet, as clients open their browser first."""

    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        """Send a request as soon as a server accepts it."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return super().http_open(request)
            except urllib.error.URLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def visit(url: str) -> None:
    """Open a page, and follow redirects to the last one."""
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies, Patient())
    opener.open(url, timeout=SECONDS).close()


if __name__ == "__main__":
    if sys.argv[1] == "--here":
        visit(sys.argv[2])
    else:
        command = [sys.executable, __file__, "--here", sys.argv[1]]
        quiet = subprocess.DEVNULL
        subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
