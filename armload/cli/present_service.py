"""Serve a model, say where it is reached, and show its log to a person."""

from __future__ import annotations

import sys
import time

from armload.cli import terminal
from armload.cli.document import show_document
from armload.engines.server import ServingPlan
from armload.report.services import ServedModel, served_view
from armload.runs.pipeline import Request
from armload.serving.service import Service
from armload.serving.starting import served

_LOOK_EVERY_S = 1.0


def serve_and_present(
    request: Request,
    model_name: str,
    plan: ServingPlan | None,
    *,
    detach: bool,
    port: int,
    as_json: bool,
) -> None:
    """Serve a model until Ctrl-C, or leave it running with ``detach``.

    Raises:
        ArmloadError: it cannot be served, or no longer is.
    """
    progress = terminal.progress()
    with served(request, model_name, plan, progress, detach=detach, port=port) as service:
        described = ServedModel.of(service, is_forwarded=not detach)
        if as_json:
            show_document(described)
        else:
            terminal.show(served_view(described))
        sys.stdout.flush()
        if not detach:
            _follow(service)


def _follow(service: Service) -> None:
    try:
        while True:
            service.check()
            print(service.log(), end="", file=sys.stderr, flush=True)
            time.sleep(_LOOK_EVERY_S)
    except KeyboardInterrupt:
        return
