"""What is recorded of a load beside its requests: the server's metrics, its board and its trace."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import requests

from armload.analysis.energy import PowerLine
from armload.analysis.load.records import ClockOffset
from armload.analysis.load.server_metrics import ServerSample, read_metrics
from armload.core.errors import ArmloadError
from armload.core.progress import Progress
from armload.serving.loads import LoadFolder
from armload.serving.point_runner import LiveView, PointRunner
from armload.serving.target import LoadTarget, Observed

LET_GO_WITHIN_S = 30.0
"""Of the last request's end; llama-server notices a client that has gone between two steps."""

_LOOK_EVERY_S = 0.1
_SAMPLE_EVERY_S = 1.0

_SCRAPE_EVERY_S = 1.0
_SCRAPE_WAIT_S = 5.0
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
                self._url, timeout=_SCRAPE_WAIT_S, stream=True, allow_redirects=False
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
        """Write a line for each scrape while the block runs, and for one at its end; pass it on.

        The thread that does so ends earlier where the server has no metrics.
        """
        done, is_closed = threading.Event(), threading.Event()

        def scrape() -> None:
            while not self._is_refused:
                is_last = done.is_set()
                found = self.scrape()
                if is_closed.is_set():
                    return
                if found is not None:
                    seen(found)
                    try:
                        with path.open("a", encoding="utf-8") as file:
                            file.write(found.model_dump_json() + "\n")
                    except OSError:
                        return  # the records of requests lie on the same disk, and tell
                if is_last:
                    return
                done.wait(_SCRAPE_EVERY_S)

        thread = threading.Thread(target=scrape, name="metrics", daemon=True)
        thread.start()
        try:
            yield thread
        finally:
            done.set()
            thread.join(_SCRAPE_WAIT_S)  # an answer that never ends is left alone
            is_closed.set()


class Observation:
    """Observes one service during a load.

    Attributes:
        scraper: of the service's own metrics.
    """

    def __init__(self, target: LoadTarget, progress: Progress) -> None:
        self._service = target.service
        self._progress = progress
        self._idle: tuple[PowerLine, ...] | None = None
        self.scraper = Scraper(target.url, target.api_key, progress)

    def clock(self) -> ClockOffset | None:
        """Measure the board's clock against this machine's; none where armload does not serve."""
        return None if self._service is None else self._service.clock()

    @contextmanager
    def recorded(self, kept: LoadFolder, number: int, live: LiveView) -> Iterator[None]:
        """Record a point within the block, and show it live; before the first, the idle power."""
        with ExitStack() as stack:
            if (service := self._service) is not None and self._idle is None:
                self._idle = service.idle_power(self._progress)
            path = kept.metrics_file(number)
            stack.enter_context(self.scraper.running(path, live.window.server))
            if service is not None:
                path = kept.board_file(number)
                stack.enter_context(_sampled(service, path, live.window.board))
                path = kept.power_file(number)
                stack.enter_context(service.power_recorded(path, self._idle or (), self._progress))
            yield

    def left_behind(self, sending: PointRunner) -> dict[str, Any]:
        """Wait until the service has let go of the requests that users gave up.

        Returns:
            Fields of the point: when it had, or what is still busy.
        """
        if not sending.outcomes["abandoned"]:
            return {}
        ended_s = sending.began_s + sending.last_end_s
        busy = 0
        while time.monotonic() < ended_s + LET_GO_WITHIN_S:
            sample = self.scraper.scrape()
            if sample is None or sample.busy is None:
                return {}
            busy = sample.busy + (sample.waiting or 0)
            if not busy:
                return {"freed_s": max(0.0, time.monotonic() - ended_s)}
            time.sleep(_LOOK_EVERY_S)
        return {"left_busy": busy}

    def divide(self, kept: LoadFolder, began_s: float, last_end_s: Mapping[int, float]) -> None:
        """Give each stage of a load its part of what was recorded.

        Args:
            began_s: time 0 of the records, on this machine's monotonic clock.
            last_end_s: when the last request of each stage ended.
        """
        points, clock = kept.load.points, kept.load.points[0].clock
        begins = [began_s + point.stage.start_s for point in points if point.stage]
        kept.divide_server_samples(begins)
        if clock is None:
            return
        kept.divide_samples([begin_s + clock.board_minus_client_s for begin_s in begins])
        for number in range(len(begins)):
            self.keep_trace(kept, number, began_s, last_end_s[number])

    def keep_trace(self, kept: LoadFolder, number: int, began_s: float, last_end_s: float) -> None:
        """Write the server's trace of a point; say so where it cannot be fetched."""
        point = kept.load.points[number]
        if self._service is None or point.clock is None or not last_end_s:
            return
        offset_s = began_s + point.clock.board_minus_client_s
        from_board_s = offset_s + (point.stage.start_s if point.stage else 0.0)
        try:
            with kept.trace_file(number).open("w", encoding="utf-8") as file:
                for line in self._service.trace(from_board_s, offset_s + last_end_s):
                    file.write(line if line.endswith("\n") else line + "\n")
        except ArmloadError as error:
            self._progress.say(
                f"The server's trace of this time could not be fetched: {error.message}"
            )


@contextmanager
def _sampled(
    service: Observed, path: Path, seen: Callable[[dict[str, Any]], None]
) -> Iterator[None]:
    """Write a line of samples each second while the block runs, and pass them on.

    A sample that fails, as while a connection is down, is left out.
    """
    done = threading.Event()

    def sample() -> None:
        with path.open("a", encoding="utf-8") as file:
            while not done.is_set():
                try:
                    sample = service.sample()
                except ArmloadError:
                    sample = {}
                if sample:
                    seen(sample)
                    file.write(json.dumps(sample, allow_nan=False) + "\n")
                    file.flush()
                done.wait(_SAMPLE_EVERY_S)

    thread = threading.Thread(target=sample, name="samples")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
