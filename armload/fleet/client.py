"""Dask's client, connected so that it takes data alone."""

from __future__ import annotations

from contextlib import suppress

from distributed import Client

from armload.fleet.data_only import data_only_url, noting
from armload.fleet.scheduler import (
    ANSWER_S,
    SchedulerAddress,
    check_answers,
    not_dask,
    security_of,
)


def connected(address: SchedulerAddress, refusals: list[str]) -> Client:
    """Connect to a scheduler.

    Args:
        refusals: gets what the scheduler sends and is refused, now or later.

    Raises:
        UsageError: there are no certificates.
        ConnectError: no scheduler answers, or it is refused.
    """
    security = security_of(address, "client")
    security.extra_conn_args = noting(refusals)
    check_answers(address)
    try:
        client = _Client(
            data_only_url(address.url),
            timeout=ANSWER_S,
            security=security,
            set_as_default=False,
            deserializers=["msgpack"],
            # Whatever the configuration says: the scheduler would choose what is connected to.
            direct_to_workers=False,
        )
        if client.scheduler_info().get("type") != "Scheduler":
            client.close(timeout=2)  # type: ignore[no-untyped-call]
            raise ImportError("it is another part of Dask")
    except Exception as error:
        cause = OSError(f"it sent {refusals[0]}") if refusals else error
        raise not_dask(address, cause) from error
    return client


class _Client(Client):
    def __init__(self, *words: object, **options: object) -> None:
        try:
            super().__init__(*words, **options)  # type: ignore[no-untyped-call]
        except Exception:
            with suppress(Exception):
                self.close(timeout=2)  # type: ignore[no-untyped-call]
            raise

    def __del__(self) -> None:
        """Do nothing: Dask would close it in any thread, even its own, and wait there for ever."""
