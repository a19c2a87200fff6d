"""A hub that sends something else than its lists and files."""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from armload.core.download import Remote, download
from armload.core.errors import ConnectError
from armload.core.progress import Silent
from armload.models.hub_sites import SITES, listed
from tests.hostile.servers import (
    GOOD,
    Script,
    chunked,
    http_attacks,
    http_forms,
    sends,
    serving,
    whole,
)
from tests.hostile.tries import Try

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def hubs(rng: random.Random, root: Path) -> Iterator[Try]:
    while True:
        body = rng.randbytes(rng.randint(2000, 200_000))
        knows = rng.random() < 0.7
        for name, script in (*http_forms(body, rng), *http_attacks(body, rng)):
            right: object = body if name in GOOD else "refused"
            if name in {"noise as a body", "a packed body"} and not knows:
                right = "any"  # nobody said what it should be
            yield Try(f"file, {name}", partial(fetched, root, script, body, knows=knows), right)
        extra = body + b"more"
        yield Try(
            "more than listed",
            partial(fetched, root, sends(whole(extra)), body, knows=True),
            "refused",
        )
        yield Try(
            "more, in chunks",
            partial(fetched, root, sends(chunked(extra, 999)), body, knows=True),
            "refused",
        )
        names = [f"model-{n}.gguf" for n in range(rng.randint(1, 9))]
        listing = {"sha": COMMIT, "siblings": [{"rfilename": n, "size": 5} for n in names]}
        text = json.dumps(listing).encode()
        for name, script in (*http_forms(text, rng), *http_attacks(text, rng)):
            yield Try(
                f"list, {name}", partial(names_in, script), names if name in GOOD else "refused"
            )
        for number, spoilt in enumerate(spoilt_listings(listing, rng)):
            yield Try(
                f"list {number}: {spoilt[:30]!r}",
                partial(names_in, sends(whole(spoilt))),
                "refused",
            )
        for name in ("../x", "/etc/passwd", "a/../../b", "", "a\nb", "a\\b", "x" * 10 + "\0"):
            bad = json.dumps({"sha": COMMIT, "siblings": [{"rfilename": name}]}).encode()
            yield Try(f"a file called {name!r}", partial(names_in, sends(whole(bad))), "refused")


def spoilt_listings(listing: dict[str, Any], rng: random.Random) -> list[bytes]:
    return [
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b"[" + b"[]," * 5_500_000 + b"[]]",
        b" " * (17 << 20),
        json.dumps({**listing, "sha": "9" * 5000}).encode(),
        json.dumps({**listing, "siblings": "abc"}).encode(),
        json.dumps({**listing, "siblings": [1, 2]}).encode(),
        json.dumps({**listing, "siblings": {"rfilename": "x"}}).encode(),
        b'{"sha": 1' + b"0" * 400 + b"}",
        json.dumps(listing).encode()[: -rng.randint(1, 30)],
        b"null",
    ]


def fetched(root: Path, script: Script, body: bytes, *, knows: bool) -> object:
    path = Path(tempfile.mkdtemp(dir=root)) / "file"
    with serving(script) as url:
        wanted = Remote(
            url=f"{url}/file",
            label="a file",
            size_bytes=len(body) if knows else None,
            digest=hashlib.sha256(body).hexdigest() if knows else "",
        )
        download(wanted, path, Silent(), lambda answer: ConnectError("refused"))
    content = path.read_bytes()
    path.unlink()
    return content


def names_in(script: Script) -> object:
    with serving(script) as url:
        os.environ["HF_ENDPOINT"] = url
        found = listed(SITES[0], "a/b", "model", "main", Silent())
    return [each.path for each in found.files]
