"""What was started: a run as it is known before its program begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import JsonValue

from armload.boards.conditions import Conditions
from armload.build.binary import engine_name
from armload.core.values import LEAVES, Leaves, Value
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction
from armload.engines.spread import Spread
from armload.engines.watched.reader import Reader
from armload.models.adapter import identity_of
from armload.models.context_memory import ContextMemory

RateKind = Literal["declared", "measured"]
"""Whether the board's file says it, or a program of ours found it out in that boot."""


class Workstation(Value):
    """What a virtual board runs on.

    Attributes:
        cores: how many it has.
        load: average number of programs that ran or waited to, in the minute before the run.
    """

    cores: Annotated[int, LEAVES]
    load: Annotated[float, LEAVES]


class BoardRecord(Value):
    """The board as it was at the time of the run.

    Attributes:
        hardware, labels: as its file says; by them boards are declared identical.
        device: its own name for itself, such as that in its device tree.
        storage_read_bytes_per_s: reading in order; what was measured wins over what is declared.
        memory_bytes_per_s: reading, with all cores at once; likewise.
        storage_read_rate, memory_rate: which of the two it is; none without a rate.
        memory_clock_hz: the memory's clock when its rate was measured; none where it is not known.
        workstation: whose CPU the board shares; none for a real board.
    """

    name: str
    target: Annotated[str, Leaves("target")]
    description: str = ""
    hardware: str = ""
    labels: tuple[str, ...] = ()
    device: str = ""
    cpu_features: Annotated[tuple[str, ...], Leaves("CPU feature")] = ()
    cores: Annotated[int, LEAVES]
    storage_read_bytes_per_s: Annotated[int | None, LEAVES] = None
    storage_read_rate: Annotated[RateKind | None, LEAVES] = None
    memory_bytes_per_s: Annotated[int | None, LEAVES] = None
    memory_rate: Annotated[RateKind | None, LEAVES] = None
    memory_clock_hz: Annotated[int | None, LEAVES] = None
    workstation: Annotated[Workstation | None, LEAVES] = None


class BinaryRecord(Value):
    """The program that ran; what is unknown of a watched one is empty or none.

    Attributes:
        sha256, size_bytes: of its file; unknown for a program that was on the board already.
        build_id, target, compiler, source: how armload built it.
        engine_commit: upstream's commit where the source tells it, else upstream's version.
        prebuilt_in: the release of armload that it came with, such as ``armload 0.1.0``; empty
            where it was compiled for this machine's cache.
        features: the CPU features that its code uses, unasked where it is one of ours. A
            watched one may have its own way of asking first.
    """

    program: Annotated[str, Leaves("program")]
    sha256: Annotated[str, Leaves("SHA-256")]
    size_bytes: Annotated[int | None, LEAVES] = None
    build_id: Annotated[str, Leaves("build id")] = ""
    target: Annotated[str, Leaves("target")] = ""
    compiler: Annotated[str, Leaves("compiler")] = ""
    source: Annotated[str, Leaves("source")] = ""
    engine_commit: Annotated[str, Leaves("engine commit")] = ""
    prebuilt_in: Annotated[str, Leaves("release")] = ""
    features: Annotated[tuple[str, ...], Leaves("CPU feature")] = ()

    @property
    def engine(self) -> str:
        """What people call the engine; empty where nothing is known of it."""
        return engine_name(self.source, self.engine_commit)

    @property
    def engine_and_source(self) -> str:
        """The same with the source that it was built from, where that is another name."""
        is_named = self.source in ("", self.engine)
        return self.engine if is_named else f"{self.engine} from {self.source}"


class AdapterRecord(Value):
    """A LoRA adapter with which a model computed.

    Attributes:
        scale: by which its products were multiplied.
        rank: the largest of its products.
        weights_bytes: of its tensors.
    """

    name: str
    sha256: Annotated[str, Leaves("SHA-256")]
    size_bytes: Annotated[int, LEAVES]
    scale: Annotated[float, LEAVES]
    rank: Annotated[int, LEAVES]
    weights_bytes: Annotated[int, LEAVES]

    @property
    def called(self) -> str:
        """Name and scale, as the option takes them, with the beginning of the checksum."""
        return f"{self.name}:{self.scale:g} ({self.sha256[:8]})"


class ModelRecord(Value):
    """The model that ran; of one that is no GGUF file, name and size alone are known.

    Attributes:
        sha256: of the file; of a folder, of its files' names and checksums.
        size_bytes: of the file, or of all files in the folder.
        context_memory: KV cache and state of recurrent layers.
        experts: of a mixture of experts, in each layer; else 0.
        adapters: with which it computed.
    """

    name: str
    sha256: Annotated[str, Leaves("SHA-256")]
    size_bytes: Annotated[int | None, LEAVES]
    architecture: Annotated[str, Leaves("architecture")] = ""
    quantisation: Annotated[str, Leaves("quantisation")] = ""
    parameters: Annotated[int | None, LEAVES] = None
    bytes_per_token: Annotated[int | None, LEAVES] = None
    context_memory: Annotated[ContextMemory | None, Leaves("numbers")] = None
    experts: Annotated[int, LEAVES] = 0
    adapters: tuple[AdapterRecord, ...] = ()

    @property
    def identity(self) -> str:
        """A checksum that tells it from others, and from itself with other adapters."""
        return identity_of(self.sha256, self.adapters)


class MediaRecord(Value):
    """An image or a sound that a model was given.

    Attributes:
        name: of the file.
        sha256, size_bytes: of what the engine got: upright, and with eight bits for each colour.
        width, height: of an image, in pixels.
        seconds: of a sound.
    """

    name: str
    sha256: Annotated[str, Leaves("SHA-256")]
    size_bytes: Annotated[int, LEAVES]
    width: Annotated[int | None, LEAVES] = None
    height: Annotated[int | None, LEAVES] = None
    seconds: Annotated[float | None, LEAVES] = None


class ProjectorRecord(Value):
    """The projector of a model that saw or heard.

    Attributes:
        kind: llama.cpp's name of its type.
        sha256, size_bytes: of its file.
        limits_tokens: a larger image gives more tokens, and ``image_max_tokens`` fewer.
    """

    kind: Annotated[str, Leaves("projector type")]
    sha256: Annotated[str, Leaves("SHA-256")]
    size_bytes: Annotated[int, LEAVES]
    limits_tokens: Annotated[bool, LEAVES] = False


class PutFile(Value):
    """A file that was copied to the board for a watched program.

    Attributes:
        name: as it is called there, with the folder that was copied.
        sha256, size_bytes: of the file.
    """

    name: str
    sha256: str
    size_bytes: int


class Watched(Value):
    """A program that ran under ``watch``.

    Attributes:
        words: the program and its arguments, as a person gave them.
        reader: of its output.
        is_guessed: nobody asked for the reader: it was chosen by the program's name.
        stdin: what its standard input was, by its file's name; empty for nothing.
        files: what was put on the board for it.
        time_limit_s: the board ends it after that long.
        n_predict: tokens that it was to generate at most; none where only its words say so.
    """

    words: tuple[str, ...]
    reader: Reader
    is_guessed: bool = False
    stdin: str = ""
    files: tuple[PutFile, ...] = ()
    time_limit_s: float
    n_predict: int | None = None


class SweepPoint(Value):
    """Where a run belongs in a sweep.

    Attributes:
        sweep: the sweep's id.
        cell: number of the cell, from 0; runs of one cell are repeats of one another.
        round: number of the round over all cells, from 0.
        warm_up: it only prepares the board; its figures are excluded from the results.
        precision: the run is repeated until the median of all is known within that share of it;
            none where the number of runs was fixed.
        test: of a suite; empty for another sweep.
    """

    sweep: Annotated[str, Leaves("end of an id")]
    cell: Annotated[int, LEAVES]
    round: Annotated[int, LEAVES]
    warm_up: Annotated[bool, LEAVES] = False
    precision: Annotated[float | None, LEAVES] = None
    test: Annotated[str, Leaves("test of the standard suite")] = ""


class RunSpec(Value):
    """What runs, as it is kept with the run.

    Attributes:
        plan: the options of llama.cpp; none for another engine.
        watched: a program that armload did not build, with its words; else none.
        arguments: of any other engine.
        binary: the program.
        model: what it reads; without a name where there is none.
        draft: a second model, whose guesses it verifies; none without one.
        projector: by which it sees or hears; none without.
        images, audio: that it was given before the prompt.
    """

    plan: Annotated[Plan | None, LEAVES] = None
    watched: Watched | None = None
    arguments: dict[str, JsonValue] | None = None
    binary: Annotated[BinaryRecord, LEAVES]
    model: ModelRecord
    draft: ModelRecord | None = None
    projector: ProjectorRecord | None = None
    images: tuple[MediaRecord, ...] = ()
    audio: MediaRecord | None = None


class Job(RunSpec):
    """Everything that is known about a run before its program starts.

    With the raw files beside it, it is all that a ``Run`` is computed from, so a run can be
    fetched by a machine that did not start it.

    Attributes:
        fingerprint: a checksum over plan, program and model; runs of the same one are one
            another's repetition.
        place: in a sweep; none outside of one.
        engine_name: in the list of engines.
        command: the words that start it on the board.
        environment: variables that it is started with.
        before: the board's state.
        spread: over the members of a group; none on a board by itself.
        prediction: what was expected before it began; none where nothing was.
        subtracts_idle: its energy is to be without what the idle board draws.
    """

    format: Literal[2] = 2
    id: str
    fingerprint: str
    place: Annotated[SweepPoint | None, LEAVES] = None
    started_utc: Annotated[str, Leaves("time")]
    armload: Annotated[str, Leaves("version")]
    engine_name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    board: BoardRecord
    before: Annotated[Conditions, LEAVES]
    spread: Spread | None = None
    prediction: Prediction | None = None
    subtracts_idle: bool = False
