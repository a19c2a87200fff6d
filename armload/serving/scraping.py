"""A server's own ``/metrics``, scraped while it is under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from armload.analysis.load.server_metrics import ServerSample, read_metrics
from armload.core.progress import Progress

_EVERY_S = 1.0
_WAIT_S = 5.0
"""A server answers between two steps, which may take longer: then this scrape is left out."""

_MOST_BYTES, _PART_BYTES = 1 << 20, 1 << 16
_OK = 200


class Scraper:
    """Scrapes one service; whatever it answers, the load goes on.

    Args:
        url: without a path.
        api_key: empty for none.
    """

    def __init__(self, url: str, api_key: str, progress: Progress) -> None:
        self._url = f"{url}/metrics"
        self._progress = progress
        self._session = requests.Session()
        self._session.trust_env = False  # a proxy would read the key
        if api_key:
            self._session.headers["Authorization"] = f"Bearer {api_key}"
        self._has_metrics = False
        self._is_told = False
        self._is_refused = False

    def scrape(self) -> ServerSample | None:
        """Return what the server says of itself now; none where it says nothing.

        Of a server without metrics that is told once, and it is not asked again.
        """
        try:
            with self._session.get(
                self._url, timeout=_WAIT_S, stream=True, allow_redirects=False
            ) as answer:
                content = b""
                for part in answer.iter_content(_PART_BYTES):
                    content += part
                    if len(content) >= _MOST_BYTES:
                        break
        except requests.RequestException:
            self._tell("no answer")
            return None
        at_s = time.monotonic()
        if answer.status_code != _OK:
            found, why = None, f"status {answer.status_code}"
        else:
            found, why = read_metrics(content.decode("utf-8", "replace"), at_s), "no metrics in it"
        if found is None:
            self._is_refused = not self._has_metrics
            self._tell(why)
        else:
            self._has_metrics = True
        return found

    def _tell(self, why: str) -> None:
        if self._has_metrics or self._is_told:
            return
        self._is_told = True
        self._progress.say(
            f"{self._url}: {why}. The load is recorded without the server's own metrics."
        )

    @contextmanager
    def running(
        self, path: Path, seen: Callable[[ServerSample], None]
    ) -> Iterator[threading.Thread]:
        """Write a line for each scrape while the block runs, and pass it on.

        The thread that does so ends earlier where the server has no metrics.
        """
        done = threading.Event()

        def scrape() -> None:
            while not (done.is_set() or self._is_refused):
                found = self.scrape()
                if found is not None and not done.is_set():
                    seen(found)
                    try:
                        with path.open("a", encoding="utf-8") as file:
                            file.write(found.model_dump_json() + "\n")
                    except OSError:
                        return  # the records of requests lie on the same disk, and tell
                done.wait(_EVERY_S)

        thread = threading.Thread(target=scrape, name="metrics", daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            done.set()
            thread.join(_WAIT_S)  # an answer that never ends is left alone
