"""How alike a model finds pairs of sentences, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import BaseModel

from armload.core.columns import Column
from armload.core.values import three_figures
from armload.evaluation.similarity import JudgedPair, Similarity
from armload.report.formatting import UNKNOWN
from armload.report.layout import Table
from armload.report.result import Part, Result

_COLUMNS: tuple[Column[JudgedPair], ...] = (
    Column(heading="first sentence", of=lambda each: each.a, is_prose=True),
    Column(heading="second sentence", of=lambda each: each.b, is_prose=True),
    Column(
        heading="score",
        of=lambda each: each.score,
        write=three_figures,
        is_optional=True,
    ),
    Column(heading="similarity", of=lambda each: each.similarity, write="{:.4f}".format),
)


@dataclass(frozen=True, kw_only=True)
class SimilarityResult(Result):
    """Pairs of sentences, as a model finds them."""

    found: Similarity

    def document(self) -> BaseModel:
        return self.found

    def view(self) -> Iterator[Part]:
        yield Table.of(_COLUMNS, self.found.pairs)
        said = UNKNOWN if self.found.spearman is None else f"{self.found.spearman:.3f}"
        yield f"{self.found.model}: Spearman's rank correlation with the scores: {said}"
        yield f"run  {self.found.run}"
