"""How alike a model finds pairs of sentences, and how that agrees with what people say of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from pydantic import Field, ValidationError

from armload.core.bounds import read_bounded
from armload.core.errors import DataError, RunError
from armload.core.files import content, require_file
from armload.core.progress import Progress
from armload.core.validation_messages import explain_mistake
from armload.core.values import Value, parse_json
from armload.core.workspace import runs_folder
from armload.deploy.layout import STDOUT_FILE
from armload.engines.embedding import (
    EMBEDDING_PROGRAM,
    Embedding,
    lines_plan,
    printed_embeddings,
)
from armload.engines.plan import Plan
from armload.models.adapter_file import with_adapters
from armload.models.find import model_called
from armload.runs.reach import Reach
from armload.runs.request import Request

_SHIPPED = "similarity/sentences.jsonl"
_MOST_BYTES = 16 << 20
_FORM = 'Each line must be like {"a": "...", "b": "...", "score": 3}; the score is optional.'


class Pair(Value):
    """Two sentences.

    Attributes:
        score: how alike people find them, the more the higher; none where nobody was asked.
    """

    a: str = Field(min_length=1)
    b: str = Field(min_length=1)
    score: float | None = Field(default=None, allow_inf_nan=False)


class JudgedPair(Pair):
    """The same, as a model finds it.

    Attributes:
        similarity: the cosine of the two embeddings; of a reranker its score for ``b`` as an answer
            to ``a``.
    """

    similarity: float


class Similarity(Value):
    """How alike a model finds pairs of sentences.

    Attributes:
        run: that computed it.
        model: its file's name.
        dimensions: of its embeddings; 1 of a reranker.
        spearman: correlation of the ranks of similarities and scores, from -1 to 1; none for fewer
            than three pairs with a score, or where all are equal.
    """

    run: str
    model: str
    dimensions: int
    spearman: float | None
    pairs: tuple[JudgedPair, ...]


def read_pairs(path: str, limit: int | None = None) -> tuple[Pair, ...]:
    """Read pairs of sentences from JSON lines.

    Args:
        path: of a file; empty for the sentences that come with armload.

    Raises:
        UsageError, DataError: there is no such file, or it holds something else.
    """
    if path:
        file = Path(path).expanduser()
        require_file(file, "file of sentences", _FORM)
        given, where = read_bounded(file, _MOST_BYTES), str(file)
    else:
        given = (resources.files("armload") / "data" / _SHIPPED).read_bytes()
        where = _SHIPPED
    pairs: list[Pair] = []
    for number, line in enumerate(given.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            pairs.append(Pair.model_validate(parse_json(line)))
        except ValidationError as error:
            raise DataError(f"{where}:{number}: {explain_mistake(error, Pair)}.", _FORM) from error
        except ValueError as error:
            raise DataError(f"{where}:{number}: not a line of JSON: {error}.", _FORM) from error
    if not pairs:
        raise DataError(f"{where} holds no pairs.", _FORM)
    return tuple(pairs[:limit])


def judge_similarity(
    request: Request,
    model_name: str,
    plan: Plan,
    pairs: Sequence[Pair],
    progress: Progress,
    *,
    reach: Reach,
) -> Similarity:
    """Embed pairs of sentences on a board, and return how alike they are.

    Args:
        plan: how they are computed, and pooled.

    Raises:
        RunError: they were not all embedded.
        ArmloadError: as for a run.
    """
    model = model_called(model_name, progress, or_embeds=True)
    model = with_adapters(model, plan.adapters, progress)
    sentences = [[" ".join(text.split()) for text in (pair.a, pair.b)] for pair in pairs]
    if model.ranks:
        lines = ["\t".join(each) for each in sentences]
    else:
        lines = [text for each in sentences for text in each]
    whole = lines_plan(plan, model, lines)
    with reach.open(request, (EMBEDDING_PROGRAM,), progress) as board:
        binary = board.where.binaries[EMBEDDING_PROGRAM]
        engine = Embedding(whole, binary, model, lines=lines)
        run = board.run(engine, new=request.new)
    rows = printed_embeddings(content(runs_folder() / run.id / STDOUT_FILE))
    if run.exit.status != 0 or len(rows) != len(lines):
        raise RunError(
            f"{run.board.name}: {len(rows)} of {len(lines)} texts were embedded: "
            f"{run.exit.meaning}",
            f"Look at the run: armload show {run.id}",
        )
    if model.ranks:
        found = [row[0] for row in rows]
    else:
        found = [_cosine(one, other) for one, other in zip(rows[::2], rows[1::2], strict=True)]
    judged = tuple(
        JudgedPair(**dict(pair), similarity=similarity)
        for pair, similarity in zip(pairs, found, strict=True)
    )
    return Similarity(
        run=run.id,
        model=model.name,
        dimensions=1 if model.ranks else len(rows[0]),
        spearman=spearman(judged),
        pairs=judged,
    )


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(one, other, strict=True))
    return product / max(math.hypot(*one) * math.hypot(*other), 1e-30)


def spearman(pairs: Sequence[JudgedPair]) -> float | None:
    """Return the rank correlation of similarities and scores; ties share their mean rank."""
    known = [(pair.similarity, pair.score) for pair in pairs if pair.score is not None]
    if len(known) < 3:
        return None
    ranks = [_ranks([each[side] for each in known]) for side in (0, 1)]
    middle = (len(known) + 1) / 2
    apart = [[rank - middle for rank in side] for side in ranks]
    spread = math.hypot(*apart[0]) * math.hypot(*apart[1])
    return sum(a * b for a, b in zip(*apart, strict=True)) / spread if spread else None


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {value: ordered.index(value) for value in set(values)}
    count = {value: ordered.count(value) for value in first}
    return [first[value] + (count[value] + 1) / 2 for value in values]
