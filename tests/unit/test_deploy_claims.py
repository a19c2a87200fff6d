"""Claims on a board, as their files on the board say them."""

from __future__ import annotations

import json

from armload.deploy.claims import parse_claims

OWNER = {"user": "ann", "process": {"pid": 7, "start_mark": "8"}}


def test_a_claim_that_is_just_renewed_counts_once() -> None:
    holder = json.dumps({**OWNER, "workstation": "thinkpad-0a1b"})
    names = ("t.boot-1.110", "t.boot-1.160", "u.boot-1.130")
    text = "".join(f"#claim {name}\n{holder}\n40\n\n" for name in names)
    found = parse_claims(f"boot-1 100\n{text}")
    assert [(claim.token, claim.left_s) for claim in found] == [("t", 60), ("u", 30)]
