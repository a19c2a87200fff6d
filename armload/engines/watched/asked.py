"""A program that armload did not build, started once for each of several questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from armload.build.inspection import Inspection
from armload.core.errors import DataError, UsageError
from armload.core.files import content, sha256_of, write_whole
from armload.core.json_lines import whole_lines
from armload.core.values import Count, Value, counted, parse_json
from armload.deploy.follow import ProgressUpdate
from armload.deploy.layout import STDERR_FILE, STDOUT_FILE, TRACE_FILE, Layout
from armload.deploy.payload import Payload
from armload.engines.answers import FailedAnswer, PrintedAnswer
from armload.engines.job import Job, RunSpec
from armload.engines.output import Memory, Output
from armload.engines.watched.command import Script
from armload.engines.watched.engine import WatchedProgram, WatchRequest
from armload.engines.watched.output import EngineOutput, read_output
from armload.engines.watched.read import answer_text, read_watching
from armload.engines.watched.reader import Reader

PROMPT, PROMPT_FILE, BUDGET = "{prompt}", "{prompt_file}", "{budget}"
"""In its arguments: a question, a file that holds it, and how many tokens the answer may have."""

_QUESTION_FILE = "question.txt"
"""As in ``toolchains/board/watch_questions.h``; in the program's working folder."""

_LONGEST_WORD_BYTES = 120_000
"""Linux takes no argument of more than 128 KiB."""

_MOST_ERROR_BYTES = 1 << 20
_SHOWN_CHARACTERS = 200


class QuestionPlan(Value):
    """How questions are asked.

    Attributes:
        questions: how many.
        limit_s: the program is ended if it takes longer for one.
        stop: texts at which an answer ends, and which are not part of it.
    """

    questions: int
    limit_s: int
    stop: tuple[str, ...] = ()


def write_questions(questions: Iterable[tuple[str, str]], path: Path) -> Path:
    """Write questions as ``watch`` reads them: id and length in bytes on a line, then the text."""
    blocks = []
    for number, question in questions:
        text = question.encode()
        blocks.append(b"%s %d\n%s\n" % (number.encode(), len(text), text))
    write_whole(path, b"".join(blocks))
    return path


def words_for(words: Sequence[str], budget: int) -> tuple[str, ...]:
    """Return a program's words for answers of so many tokens."""
    return tuple(
        each.replace(BUDGET, str(budget)).replace(PROMPT_FILE, _QUESTION_FILE) for each in words
    )


def check_askable(reader: Reader, words: Sequence[str], longest: str) -> None:
    """Refuse a program whose answers could not be compared, or whose questions it cannot be given.

    Args:
        longest: question.

    Raises:
        UsageError: says which.
    """
    if not (reader.counts_tokens and reader.has_text):
        raise UsageError(
            f"The reader {reader.name} does not find an answer and its number of tokens, which an "
            "evaluation compares.",
            "Name one that does with --reader, or write one: the page other-engines.md.",
        )
    in_words = any(PROMPT in each for each in words)
    if in_words and (len(longest.encode()) > _LONGEST_WORD_BYTES or "\0" in longest):
        raise UsageError(
            f"A question of {counted(len(longest), 'character')} is too long for an argument.",
            f"Use {PROMPT_FILE} instead of {PROMPT} if the program reads files.",
        )


class AskedProgram(WatchedProgram):
    """A program that armload did not build, started once for each question of a file.

    Args:
        request, payload, program: as for ``WatchedProgram``.
        questions: the file, as ``write_questions`` writes it.
        plan: how they are asked.
    """

    name = "ask"
    unit = "questions"

    def __init__(
        self,
        request: WatchRequest,
        payload: Sequence[Payload],
        program: Inspection | Script | str,
        questions: Path,
        plan: QuestionPlan,
    ) -> None:
        file = Payload.of_file(questions, sha256=sha256_of(questions), executable=False)
        super().__init__(request, payload, program, file)
        self.plan = plan

    @property
    def subject(self) -> RunSpec:
        """The words, what is known of program and model, and how it was asked."""
        return super().subject.model_copy(update={"arguments": self.plan.model_dump(mode="json")})

    @property
    def total(self) -> int | None:
        return self.plan.questions

    @property
    def unsendable(self) -> tuple[str, str]:
        return (
            "A program after -- cannot run through a gateway: its files are not sent there.",
            "Omit --scheduler.",
        )

    def _input_words(self, layout: Layout) -> tuple[str, ...]:
        file = self.payload[-1]
        return ("-q", str(file.folder(layout) / file.name), "-t", str(self.plan.limit_s))

    def progress(self, now: ProgressUpdate) -> int:
        """Return the number of answers."""
        return now.lines

    @staticmethod
    def read(job: Job, folder: Path) -> Output:
        """Read the answers, and the program's memory."""
        if job.watched is None:
            return Output()
        plan, noted = _plan_of(job), read_watching(folder / TRACE_FILE)
        answers = read_printed(job, folder)
        printed = [each for each in answers if isinstance(each, PrintedAnswer)]
        resident = [each.rss_bytes for each in noted.writes]
        resident += [each.rss_bytes for each in noted.looks]
        resident += [noted.end.max_rss_bytes] if noted.end else []
        most, missing = max(resident, default=0), plan.questions - len(answers)
        return Output(
            header=noted.header,
            memory=Memory(max_rss_bytes=most, max_vms_bytes=most) if most else None,
            result={
                "answers": len(answers),
                "errors": len(answers) - len(printed),
                "prompt_tokens": sum(each.prompt_tokens for each in printed),
                "generated_tokens": sum(each.tokens for each in printed),
            },
            missing=f"{missing} of {counted(plan.questions, 'question')} have no answer."
            if missing > 0
            else "",
            notes=tuple(filter(None, [job.watched.reader.note])),
        )


class _Process(Value):
    """What one process wrote, as ``watch`` tells it: the lines of a run's standard output.

    Attributes:
        cut_by: why it was ended: it took too long, or wrote too much; empty where it was not.
        first_ns, last_ns: of its writes; 0 where it wrote nothing.
        stderr_bytes: length of the run's standard error at its end.
        stdout: each byte as the character of the same number.
    """

    id: str
    status: Count
    cut_by: Literal["", "time", "output"]
    start_ns: Count
    first_ns: Count
    last_ns: Count
    end_ns: Count
    stderr_bytes: Count
    stdout: str


def read_printed(job: Job, folder: Path) -> tuple[PrintedAnswer | FailedAnswer, ...]:
    """Read the answers of a run; a line that was cut off is left out.

    Raises:
        DataError: a whole line is no answer.
    """
    if job.watched is None:
        return ()
    reader, plan, begin = job.watched.reader, _plan_of(job), 0
    path, found = folder / STDOUT_FILE, list[PrintedAnswer | FailedAnswer]()
    for number, line in enumerate(whole_lines(content(path)).splitlines(), start=1):
        try:
            process = _Process.model_validate(parse_json(line))
            stdout = process.stdout.encode("latin-1")
        except ValueError as error:
            raise DataError(
                f"{path}, line {number}: not an answer that this armload can read.",
                "The file was changed. Ask again with --new.",
            ) from error
        stderr = _part(folder / STDERR_FILE, begin, process.stderr_bytes)
        begin = process.stderr_bytes
        found.append(_answer(process, reader, plan, stdout, stderr))
    return tuple(found)


def parse_texts(lines: Sequence[str], reader: Reader) -> Iterator[PrintedAnswer]:
    """Yield the texts in lines that a run writes while it goes on; their figures come later."""
    for line in lines:
        try:
            process = _Process.model_validate(parse_json(line))
            stdout = process.stdout.encode("latin-1")
        except ValueError:
            continue
        if process.cut_by or process.status:
            continue
        text, _ = answer_text(reader, read_output(reader, stdout), stdout)
        yield _printed(process, EngineOutput(), text or "")


def _plan_of(job: Job) -> QuestionPlan:
    try:
        return QuestionPlan.model_validate(job.arguments)
    except ValidationError as error:
        raise DataError(f"{job.id}: its description lacks how questions were asked.") from error


def _part(path: Path, begin: int, end: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(max(begin, end - _MOST_ERROR_BYTES))
            return file.read(max(0, end - file.tell()))
    except OSError:
        return b""


def _answer(
    process: _Process, reader: Reader, plan: QuestionPlan, stdout: bytes, stderr: bytes
) -> PrintedAnswer | FailedAnswer:
    output = read_output(reader, stdout, stderr)
    error = _failure(process, plan, output, stderr)
    if error:
        return FailedAnswer(id=process.id, kind="printed", error=error)
    text, _ = answer_text(reader, output, stdout)
    return _printed(process, output, _before_stop(text or "", plan.stop))


def _failure(process: _Process, plan: QuestionPlan, output: EngineOutput, stderr: bytes) -> str:
    if process.cut_by == "time":
        return f"the program was ended after {plan.limit_s} s (--time-limit)"
    if process.cut_by == "output":
        return "the program was ended because it wrote more than 1 MiB"
    if process.status:
        lines = stderr.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"the program ended with status {process.status}: {last[-_SHOWN_CHARACTERS:]}"
    if output.missing:
        return output.missing.rstrip(".")
    if output.output_tokens is None or output.prefill_tokens is None:
        return "the program printed no number of tokens, or several"
    return ""


def _printed(process: _Process, output: EngineOutput, text: str) -> PrintedAnswer:
    tokens, prompt_tokens = output.output_tokens or 0, output.prefill_tokens or 0
    decode_tokens = output.decode_tokens or 0
    return PrintedAnswer(
        id=process.id,
        prompt_tokens=prompt_tokens,
        tokens=tokens,
        prefill_s=_seconds(output.prefill_s, prompt_tokens, output.prefill_tps),
        decode_s=_seconds(output.decode_s, decode_tokens, output.decode_tps),
        wall_s=(max(process.last_ns, process.start_ns) - process.start_ns) / 1e9,
        text=text,
    )


def _seconds(printed_s: float | None, tokens: int, rate: float | None) -> float | None:
    if printed_s is None and rate:
        return tokens / rate
    return printed_s


def _before_stop(text: str, stops: Sequence[str]) -> str:
    return text[: min((at for each in stops if (at := text.find(each)) >= 0), default=len(text))]
