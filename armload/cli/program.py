"""The program behind ``armload VERB``, and the same verbs for Invoke."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from inspect import getdoc

from invoke.collection import Collection
from invoke.config import Config
from invoke.program import Program

from armload import __version__
from armload.cli.configuration import VERBS, shown_defaults
from armload.cli.error_output import disk_error, failed
from armload.cli.help import columns, grouped, prose, shown
from armload.cli.llama_cpp_spellings import spellings_of
from armload.cli.main import end
from armload.cli.parse_errors import second_verb
from armload.cli.streams import discard_output
from armload.cli.verb import Verb, add_verb
from armload.cli.verbs import (
    bench,
    bisect,
    board,
    build,
    clean,
    compare,
    completion,
    config,
    deploy,
    evaluation,
    exchange,
    fit,
    init,
    load,
    model,
    serve,
    show,
    trust,
    tune,
    watch,
    worker,
)
from armload.core.options import declared_options

_GROUPED: Mapping[str, Sequence[Verb | Collection]] = {
    "Get started": (bench.demo, init.init),
    "Boards": (board.collection,),
    "Build and deploy": (build.build, build.inspect, deploy.deploy),
    "Models": (fit.fit, model.collection),
    "Measure": (
        *(bench.bench, watch.watch, bench.pull, tune.tune, bisect.bisect),
        *(evaluation.evaluate, evaluation.tradeoff),
    ),
    "Services": (serve.group, load.load),
    "Results": (
        *(show.show, show.report, compare.compare),
        *(exchange.export, exchange.import_results),
    ),
    "Administration": (
        *(config.config, trust.trust, completion.completion),
        *(clean.clean, worker.worker),
    ),
}
"""All verbs, by what a person does with them."""

namespace = Collection("armload")
VERB_GROUPS = {
    heading: [name for verb in verbs for name in add_verb(namespace, verb)]
    for heading, verbs in _GROUPED.items()
}
"""The names of all verbs as help lists them, by their heading."""
for name in namespace.task_names:
    namespace[name].full_name = name
    VERBS[name] = namespace[name].options

_HELP_WORDS = {"help", "--help", "-h"}
_HELP = ("-h, --help", "show this page")
ABOUT = """
Run language models on ARM boards: build llama.cpp, deploy it, time every token, and see what limits
the speed. Try 'armload demo' first: it needs no board.
"""
EXIT_STATUSES = """
Exit statuses: 0 success, even if no run is valid, 1 internal error, or a local file or disk that
cannot be read or written, 2 wrong argument, 3 malformed file, 4 missing tool, 5 build failed,
6 no connection, 7 board error, 8 transfer failed, 9 run failed, 10 board in use, 11 slower than
compare allows, 12 comparison inconclusive, 13 logits differ, 14 too little memory on this machine,
15 file not trusted, 130 interrupted.
"""


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise ``KeyboardInterrupt`` within the block."""
    if signal.getsignal(signal.SIGINT) is not end:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, end)


class _Armload(Program):
    def parse_core(self, argv: list[str] | None) -> None:
        chosen = sys.dont_write_bytecode
        super().parse_core(argv)
        # Invoke forbids byte code, so that a verb would compile its modules at every start.
        sys.dont_write_bytecode = chosen

    def create_config(self) -> None:
        # Invoke's own settings have no say here, and ~/.invoke.yaml may be somebody else's.
        self.config = Config(lazy=True)

    def execute(self) -> None:
        if len(self.tasks) > 1:  # Invoke would run one after the other
            raise second_verb(*(str(task.name) for task in self.tasks[:2]))
        with _interruptible():
            super().execute()

    def print_help(self) -> None:
        print("Usage: armload VERB [--options]\n       armload VERB --help\n")
        print(f"{prose(ABOUT)}\n")
        widest = max(map(len, namespace.task_names))
        for heading, names in VERB_GROUPS.items():
            print(f"{heading}:\n")
            print(columns([(name, namespace[name].about) for name in names], widest=widest))
        print("Options:\n")
        print(columns([_HELP, ("-V, --version", "show the version")], widest=widest))
        print(prose(EXIT_STATUSES))

    def print_columns(self, tuples: Sequence[tuple[str, str | None]]) -> None:
        print(columns(tuples))

    def print_task_help(self, name: str) -> None:
        task = self.collection[name]
        options = list(declared_options(task.options))
        words = task.usage()
        print(f"Usage: {' '.join(['armload', name, *words, '[--options]'])}\n")
        print(f"{prose(getdoc(task) or '')}\n")
        names = [each.shown for each in options]
        if spellings := [each for name in names for each in spellings_of(name, names)]:
            print(prose(f"Also accepted, as in llama.cpp's programs: {', '.join(spellings)}."))
            print()
        arguments = [each for each in options if each.option.is_argument]
        if arguments:
            print("Arguments:\n")
            meanings = [each.help for each in arguments]
            self.print_columns(list(zip(words, meanings, strict=True)))
        groups = grouped([each for each in options if not each.option.is_argument])
        own = shown_defaults(name)
        lists = {
            heading: [
                (shown(each), each.help_with(own.get(each.field, each.default))) for each in group
            ]
            for heading, group in groups.items()
        }
        (*_, last) = lists.values()
        last.append(_HELP)
        widest = max(len(word) for pairs in lists.values() for word, _ in pairs)
        for heading, pairs in lists.items():
            print(f"{heading}:\n")
            print(columns(pairs, widest=widest))


def _with_help_last(words: Sequence[str]) -> list[str]:
    """Return ``armload VERB --help`` for ``armload help VERB``, and other lines unchanged."""
    name, *others = words
    if not others or others[0] not in _HELP_WORDS or any(each[:1] == "-" for each in others[1:]):
        return list(words)
    return [name, *filter(None, [".".join(others[1:])]), "--help"]


def run() -> None:
    """Run the verb that the command line names."""
    program = _Armload(name="armload", binary="armload", version=__version__, namespace=namespace)
    try:
        try:
            program.run(_with_help_last(sys.argv))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # as in 'armload --help | head'
        discard_output()
    except OSError as error:  # a disk that is full, where standard output is a file on it
        sys.exit(failed(disk_error(error)).code)
