"""A webhook that gets a message when the health of a stream changes."""

import json
import logging
import queue
import threading
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from tapr.errors import InputError

log = logging.getLogger("tapr.service")
WAITING = 100  # alarms that may wait for a slow receiver; later ones are dropped, and logged
TRIES = 3
TIMEOUT = 5.0  # seconds


class Alarm:
    """Posts JSON to a URL from its own thread, so that a slow receiver delays no prediction."""

    def __init__(self, url: str) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise InputError(f"expected the alarm's URL to begin with http or https, got {url!r}")
        self._url = url
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name="alarm", daemon=True)
        self._thread.start()

    def send(self, message: dict[str, Any]) -> None:
        """Put the message into the queue; the thread posts it."""
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            log.error("dropped an alarm, since %s are waiting already: %s", WAITING, message)

    def close(self) -> None:
        """Send the waiting messages, if that does not take long."""
        try:
            self._waiting.put(None, timeout=1)
        except queue.Full:
            return
        self._thread.join(TIMEOUT)

    def _run(self) -> None:
        while (message := self._waiting.get()) is not None:
            for left in reversed(range(TRIES)):
                try:
                    self._post(message)
                    break
                except OSError as error:
                    log.warning("the alarm could not be sent (%s), %s tries left", error, left)

    def _post(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, body, headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT):
            pass
