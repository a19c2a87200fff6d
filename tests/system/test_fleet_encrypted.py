"""A lab whose machines know each other by certificates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.labs import Lab, certificates, check_sweep
from tests.outside_data import STORIES, needs_stories


@pytest.mark.build
@pytest.mark.exhaustive(covers=["armload/fleet"])
@needs_stories
def test_only_who_has_a_certificate_of_the_lab_uses_it(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    dask = certificates(tmp_path)
    lab = Lab(tmp_path, {"hall": ("one",)}, dask, sleeping=True)
    lab.start()
    try:
        words = ("bench", "--board", "one", "--scheduler", lab.address)
        model = ("--model", str(STORIES), "-t", "1", "-n", "10", "--repeats", "2", "--json")
        swept = json.loads(lab.ann.types(*words, *model).stdout)
        check_sweep(lab, swept["sweep"], cells=1, repeats=2)
        lab.ann.environment |= certificates(tmp_path / "other")
        refused = lab.ann.types(*words, *model, status=6)
        assert "does not answer as a Dask scheduler with these certificates" in refused.stderr
        lab.ann.environment["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = str(tmp_path / "none.pem")
        missing = lab.ann.types(*words, *model, status=2)
        assert "a certificate in Dask's configuration cannot be used" in missing.stderr
    finally:
        lab.stop()
