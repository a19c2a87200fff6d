"""The one place where results are printed: for a program or for a person."""

from __future__ import annotations

import sys

from pydantic import BaseModel

from armload.cli import terminal
from armload.cli.streams import show_document
from armload.report.result import Aside, Result, Verbatim


def present(result: Result, *, as_json: bool) -> None:
    """Write a result's files, and print its document or its view.

    Raises:
        ArmloadError: the result's error.
    """
    _ = result.files  # a page that cannot be written is known before anything is printed
    if as_json:
        if (document := result.document()) is not None:
            show_document(document)
    else:
        for each in result.view():
            if isinstance(each, Aside):
                terminal.say(each.text)
            elif isinstance(each, BaseModel):
                show_document(each)
            elif isinstance(each, Verbatim):
                sys.stdout.write(each.text)
            else:
                terminal.show(each)
    for remark in result.remarks():
        terminal.say(remark)
    sys.stdout.flush()  # results precede what is said of them where one file takes both
    if result.error is not None:
        raise result.error
