"""What the members of a group did during a run, on the clock of its steps."""

from __future__ import annotations

import pytest

from armload.analysis.members import MemberSample, ServerLoad, computed_s, cpu_between

SAMPLES = [MemberSample(at_s=10.0 + second, cpu_s=0.5 * second) for second in range(11)]


def test_cpu_time_between_two_moments_is_read_between_the_samples() -> None:
    assert cpu_between(SAMPLES, 12.5, 17.5) == pytest.approx(2.5)
    assert cpu_between(SAMPLES, 5.0, 50.0) == pytest.approx(5.0)
    server = ServerLoad(board="b", threads=2, samples=tuple(SAMPLES))
    assert computed_s(server, 12.5, 17.5) == pytest.approx(1.25)


def test_too_few_samples_tell_nothing() -> None:
    assert cpu_between(SAMPLES, 12.5, 14.2) is None
    assert cpu_between([], 0, 100) is None
