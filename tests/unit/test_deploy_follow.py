"""How far a run is, by the lines of its trace."""

from __future__ import annotations

from armload.deploy.follow import FollowBuffer, ProgressUpdate, _Heard


def test_preparing_and_encoding_an_image_are_no_progress_of_its_tokens() -> None:
    updates: list[ProgressUpdate] = []
    heard = _Heard(updates.append, FollowBuffer(None))
    for line in (
        b'{"armload_trace":1}',
        b'{"step":0,"stage":"preprocessing","tokens":0}',
        b'{"step":1,"stage":"encoder","tokens":0}',
        b'{"step":2,"tokens":4}',
        b'{"step":3,"tokens":64,"media_tokens":64}',
        b'{"step":4,"tokens":7}',
        b'{"step":5,"tokens":1}',
    ):
        heard.take("stdout", line + b"\n")
    assert [(each.steps, each.media_steps) for each in updates] == [
        *[(0, 0)] * 3,
        *((1, 0), (2, 1), (3, 1), (4, 1)),
    ]
