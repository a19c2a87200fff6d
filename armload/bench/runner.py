"""The one way through: model and board to binary, deployment, run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from armload.bench import store
from armload.bench.assemble import assemble, read_job
from armload.bench.job import FILE_NAME, Job, new_job
from armload.bench.plan import Plan
from armload.bench.run import Exit, Memory, Run
from armload.boards.board import Board, load_board
from armload.boards.connect import connect
from armload.boards.host import Host
from armload.boards.probe import Probe, probe
from armload.build.binary import Binary
from armload.build.builder import build
from armload.build.source import choose
from armload.build.target import load_target
from armload.core.errors import ConnectError
from armload.core.progress import Progress, Step
from armload.core.values import Value
from armload.core.workspace import runs_folder
from armload.deploy.collect import collect, list_runs
from armload.deploy.deployment import Deployment, deploy
from armload.deploy.ending import Ending, explain
from armload.deploy.follow import follow, stop
from armload.deploy.launch import launch
from armload.deploy.layout import Layout
from armload.models.find import resolve
from armload.models.gguf import read_model
from armload.models.model import Model
