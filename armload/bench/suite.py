"""A fixed set of prompts and lengths, whose runs together give one figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from armload.analysis.run import Run
from armload.core.deciding import DESCRIBES, Words
from armload.core.errors import UsageError
from armload.core.ids import fingerprint_of
from armload.core.values import Value
from armload.core.yamlfile import load_file, load_named, load_shipped
from armload.engines.llama_cpp import needed_tokens
from armload.engines.plan import Plan, PromptText, PromptTokens, TokenCount
from armload.models.model import Model

SUITES = "suites"
"""The folder of suites' files."""

STANDARD = "standard"
FIXED = ("prompt", "prompt_tokens", "n_predict", "depth", "image", "audio")
"""Options that a suite decides."""


class SuiteTest(Value):
    """One prompt with the length of its output.

    Attributes:
        name: in the suite, such as ``code-analysis``.
        prompt: its text.
        prompt_tokens: the length of a prompt of common words, in place of a text.
        n_predict: tokens to generate.
    """

    name: Annotated[Words, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
    prompt: Annotated[PromptText | None, DESCRIBES] = None
    prompt_tokens: PromptTokens | None = None
    n_predict: TokenCount

    @model_validator(mode="after")
    def _has_one_prompt(self) -> Self:
        if (self.prompt is None) == (self.prompt_tokens is None):
            raise ValueError("give either prompt or prompt_tokens")
        return self

    def of(self, plan: Plan) -> Plan:
        """Return a plan with this test's prompt and length."""
        return plan.model_copy(update=self.model_dump(exclude={"name"}, exclude_none=True))

    def is_of(self, plan: Plan) -> bool:
        """Tell whether a plan has this test's prompt and length."""
        if plan.n_predict != self.n_predict or plan.prompt_tokens != self.prompt_tokens:
            return False
        return self.prompt_tokens is not None or plan.prompt == self.prompt


class Suite(Value):
    """A fixed set of tests.

    Attributes:
        name: of its file.
        description: one sentence.
        version: goes up when a test changes.
        tests: at least one, each under a name of its own.
    """

    name: Words = ""
    description: Words = ""
    version: Annotated[int, Field(ge=1)] = 1
    tests: Annotated[tuple[SuiteTest, ...], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        names = [test.name for test in self.tests]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two tests are called {twice}")
        return self

    @property
    def checksum(self) -> str:
        """A checksum over what its tests do."""
        return fingerprint_of(tuple(test.model_dump_json() for test in self.tests))[:12]

    @property
    def title(self) -> str:
        """Name, version and checksum: results compare where all three are the same."""
        return f"{self.name} (version {self.version}, {self.checksum})"

    def plans(self, plans: Sequence[Plan]) -> Iterator[Plan]:
        """Yield every test with every plan."""
        yield from dict.fromkeys(test.of(plan) for plan in plans for test in self.tests)

    def test_of(self, plan: Plan | None) -> SuiteTest | None:
        """Return the test that a plan is of; none for another plan."""
        return next((test for test in self.tests if plan and test.is_of(plan)), None)

    def counted_test_of(self, plan: Plan | None) -> SuiteTest | None:
        """Return the test that a plan does, unless an option changes its work."""
        test = self.test_of(plan)
        if plan is None or test is None:
            return None
        usual = (plan.depth_tokens, plan.temperature, plan.stop_at_end, plan.cold)
        return test if usual == (0, 0.0, False, False) else None

    def too_long_for(self, model: Model) -> tuple[SuiteTest, ...]:
        """Return the tests that exceed the context that a model was trained for."""
        lengths = ((test, needed_tokens(test.of(Plan()), model)) for test in self.tests)
        return tuple(test for test, tokens in lengths if tokens > model.context_length)


def suite_called(name: str) -> Suite:
    """Read a suite: a shipped one or a workspace's by its name, or a file.

    Raises:
        UsageError, DataError: there is none, or it is malformed.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise UsageError(
                f"--suite {name}: there is no such file.", "Correct the path, or use: standard"
            )
        suite = load_file(path, Suite)
        return suite.model_copy(update={"name": suite.name or path.stem})
    return load_named(SUITES, name, Suite)


@cache
def standard_suite() -> Suite:
    """Return the suite that comes with armload, whatever a workspace calls by its name."""
    return next(each for each in load_shipped(SUITES, Suite) if each.name == STANDARD)


class SuiteScore(Value):
    """What the runs of a suite give together.

    Attributes:
        tokens_per_s: geometric mean over all tests of output tokens per second of prefill and
            decode together; none while a test is missing.
        decode_tps: geometric mean of the tests' decode rates; likewise.
        prefill_s: geometric mean of the time from the prompt to the first token, without loading
            the model; likewise.
        missing: tests without a valid run.
    """

    tokens_per_s: float | None = None
    decode_tps: float | None = None
    prefill_s: float | None = None
    missing: tuple[str, ...] = ()


def score_of(suite: Suite, runs: Sequence[Run]) -> SuiteScore:
    """Compute a suite's score from runs of one model on one board with one method.

    Repeats of a test are pooled by the geometric mean, too.
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for run in runs:
        test, figures = suite.counted_test_of(run.plan), run.summary
        if test is None or not run.verdict.valid:
            continue
        if figures.prefill_s and figures.decode_s and figures.decode_tps:
            total_s = figures.prefill_s + figures.decode_s
            each = (test.n_predict / total_s, figures.decode_tps, figures.prefill_s)
            found.setdefault(test.name, []).append(each)
    missing = tuple(test.name for test in suite.tests if test.name not in found)
    if missing:
        return SuiteScore(missing=missing)
    pooled = [[_geometric(kind) for kind in zip(*each, strict=True)] for each in found.values()]
    total, decode, prefill = (_geometric(kind) for kind in zip(*pooled, strict=True))
    return SuiteScore(tokens_per_s=total, decode_tps=decode, prefill_s=prefill)


def _geometric(figures: Sequence[float]) -> float:
    return math.exp(math.fsum(map(math.log, figures)) / len(figures))


def refuse_fixed(given: Mapping[str, object], suite: Suite) -> None:
    """Refuse a plan file that says what a suite decides."""
    if said := next((name for name in FIXED if given.get(name)), None):
        raise UsageError(
            f"--suite {suite.name} decides {said}, which the plan file says as well.",
            f"Remove {said} from the plan file.",
        )
