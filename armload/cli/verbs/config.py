"""``config``: a person's own defaults for options, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from armload.cli.options import OutputOptions
from armload.cli.verb import verb
from armload.core.options import Option

if TYPE_CHECKING:
    from armload.report.result import Result


class ConfigOptions(OutputOptions):
    """Whose defaults are shown."""

    verb: Annotated[str, Option("a verb, such as bench", usual="every verb", is_argument=True)] = ""


@verb(ConfigOptions)
def config(options: ConfigOptions) -> Result:
    """Check and show your own defaults for options, and where each is set.

    A file has a table for each verb, such as [bench], and [all] for every verb that has the option.
    Precedence, highest first: the command line, a plan file, [tool.armload] in the workspace's
    pyproject.toml, your own config.toml.
    Example: armload config bench
    """
    from armload.cli.configuration import (
        all_defaults,
        check_defaults,
        deciding_defaults,
        defaults_of,
        user_file,
        workspace_file,
    )
    from armload.cli.verb import VERBS
    from armload.core.errors import UsageError
    from armload.core.near_names import did_you_mean
    from armload.core.trust import is_trusted
    from armload.core.values import ValueList
    from armload.report.defaults import SetDefault, defaults_view
    from armload.report.result import as_result

    if options.verb and options.verb not in VERBS:
        raise UsageError(
            f"There is no verb {options.verb!r}.",
            f"{did_you_mean(options.verb, VERBS)}See: armload --help",
        )
    for name in [options.verb] if options.verb else VERBS:
        check_defaults(name)
    found = list(defaults_of(options.verb).values()) if options.verb else all_defaults()
    decides = deciding_defaults(workspace_file())
    refused = decides.path if decides.keys and not is_trusted(decides) else None
    documents = ValueList[SetDefault](
        tuple(
            SetDefault(
                verb=each.verb,
                option=each.option.name,
                value=each.word,
                file=each.file,
                trusted=each.file != refused,
            )
            for each in found
        )
    )
    return as_result(documents, defaults_view(documents.root, user_file()))
