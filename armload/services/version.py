"""A version of an installed service: all that decides what it answers, as kept on the board."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from armload.boards.boot import InitName
from armload.core.ids import time_of_id
from armload.core.values import Count, Finite, Value
from armload.deploy.layout import Layout
from armload.engines.job import BinaryRecord, ModelRecord, ProjectorRecord
from armload.engines.service_plan import ServingPlan

_LOAD_S, _LOADS_AT_LEAST_BYTES_PER_S = 300, 2_000_000


def new_version_id() -> str:
    """Return an id by which versions sort by time."""
    return f"{time_of_id(datetime.now(UTC))}-{secrets.token_hex(2)}"


class MemoryForecast(Value):
    """What a model is expected to take of the board's memory.

    Attributes:
        weights_bytes: of its file, which is mapped or streamed.
        own_bytes: KV cache, buffers and prompt cache.
        is_exact: llama.cpp's own figures; else estimated from the model's header.
        is_streamed: the weights are read ahead of the computation instead of mapped.
        load_s: until it is read from storage and ready; none where that is unknown.
    """

    weights_bytes: Count
    own_bytes: Count
    is_exact: bool
    is_streamed: bool
    load_s: Finite | None = None

    @property
    def all_bytes(self) -> int:
        return self.weights_bytes + self.own_bytes


class InstalledModel(Value):
    """One model of a service.

    Attributes:
        alias: what requests call it.
        given: how it was named on the command line; a file by its whole path.
        file, draft, projector: what lies on the board; a draft model only where one guesses tokens,
            a projector only where it takes images or sounds.
        plan: how it is served.
        forecast: of its memory.
    """

    alias: str
    given: str
    file: ModelRecord
    draft: ModelRecord | None = None
    projector: ProjectorRecord | None = None
    plan: ServingPlan
    forecast: MemoryForecast


class Listening(Value):
    """Where a service listens.

    Attributes:
        addresses: of the board, its loopback first unless a wildcard includes it.
        port: the same on all.
        with_tls: other machines reach it by TLS alone.
        may_be_public: a person wants the internet to reach it.
    """

    addresses: tuple[str, ...]
    port: Annotated[int, Field(ge=1, le=65535)]
    with_tls: bool = False
    may_be_public: bool = False

    @property
    def open_addresses(self) -> tuple[str, ...]:
        """The addresses on which other machines reach it."""
        return tuple(
            each for each in self.addresses if not each.startswith("127.") and each != "::1"
        )

    @property
    def is_open(self) -> bool:
        """Whether other machines reach it."""
        return bool(self.open_addresses)

    @property
    def words(self) -> str:
        """Where other machines reach it, or its loopback."""
        shown = [each for each in self.addresses if not each.startswith("127.")]
        address = (shown or list(self.addresses))[0]
        return f"[{address}]:{self.port}" if ":" in address else f"{address}:{self.port}"


class ServiceVersion(Value):
    """All that decides what a service answers.

    Attributes:
        id: sorts by time.
        service: its name.
        created_utc, armload: when it was written, and by which version of armload.
        models: one, or several behind a router.
        most_loaded: how many of several are in memory at a time.
        sleep_idle_s: idle for so long, a model's memory is freed; none for never.
        listening: where.
        engine: llama-server.
        memory_limit_bytes: of anonymous memory; beyond it the service is ended.
        uses: folders of the work folder that hold what it needs, such as ``bin/0123456789ab``.
        user: that it runs as, one of its own; none for the login's.
        init: what starts it at boot.
    """

    format: Literal[1] = 1
    id: str
    service: str
    created_utc: str
    armload: str
    models: tuple[InstalledModel, ...]
    most_loaded: Count = 1
    sleep_idle_s: Count | None = None
    listening: Listening
    engine: BinaryRecord
    memory_limit_bytes: Count | None
    uses: tuple[PurePosixPath, ...]
    user: str | None = None
    init: InitName

    @property
    def names(self) -> str:
        """What its models are called."""
        return ", ".join(each.alias for each in self.models)

    @property
    def load_limit_s(self) -> int:
        """How long it may load before it counts as failed."""
        size_bytes = max(each.forecast.weights_bytes for each in self.models)
        return _LOAD_S + size_bytes // _LOADS_AT_LEAST_BYTES_PER_S


class AnsweredSpeed(Value):
    """How fast a model of a version answered right after its start, with nobody else asking.

    Attributes:
        model: its alias.
        token_s: time per generated token, of each of some equal requests; empty where the server
            does not say, as of embeddings.
        tokens: that each generated.
        text: that the first wrote.
    """

    model: str
    token_s: tuple[Finite, ...]
    tokens: Count
    text: str


class AnsweredSpeeds(Value):
    """How fast each model of a version answered."""

    models: tuple[AnsweredSpeed, ...]


class ServiceLayout(Value):
    """The paths of one service under a board's work folder.

    Attributes:
        workdir: armload's folder on the board.
        name: of the service.
    """

    workdir: PurePosixPath
    name: str

    @property
    def service(self) -> str:
        """The name of the service, also where this is the folder of a version that is tried."""
        return self.name.partition("/")[0]

    @property
    def folder(self) -> PurePosixPath:
        return services_folder(self.workdir) / self.name

    @property
    def run(self) -> PurePosixPath:
        return self.folder / "run"

    @property
    def keys(self) -> PurePosixPath:
        return self.folder / "keys"

    @property
    def tls(self) -> PurePosixPath:
        """The file with its certificate and private key."""
        return self.folder / "tls.pem"

    @property
    def log(self) -> PurePosixPath:
        return self.folder / "log"

    def trace(self, version_id: str, alias: str = "") -> PurePosixPath:
        """Return the trace of a version; of several models, each has its own."""
        own = f"-{alias}" if alias else ""
        return self.folder / f"trace-{version_id}{own}.jsonl"

    @property
    def trying(self) -> ServiceLayout:
        """The folder of a version that is tried on another port.

        Root starts it, so it lies where the service's user cannot make one.
        """
        return self.model_copy(update={"name": f"{self.name}/versions/try"})

    def version(self, version_id: str) -> PurePosixPath:
        return self.folder / "versions" / version_id


def services_folder(workdir: PurePosixPath) -> PurePosixPath:
    """Return where installed services lie."""
    return Layout(workdir=workdir).services
