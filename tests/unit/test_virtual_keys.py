import base64
from pathlib import Path

import paramiko

from armload.boards.virtual.state import dropbear_form, key_pair


def test_public_half_is_the_one_that_an_ssh_library_reads(tmp_path: Path) -> None:
    pair = key_pair(tmp_path / "key")
    read_back = paramiko.Ed25519Key.from_private_key_file(str(pair.private))
    assert pair.public == f"ssh-ed25519 {read_back.get_base64()}"


def test_key_is_kept_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    first = key_pair(tmp_path / "key")
    assert key_pair(tmp_path / "key") == first
    assert first.private.stat().st_mode & 0o077 == 0


def test_two_keys_differ(tmp_path: Path) -> None:
    assert key_pair(tmp_path / "a").public != key_pair(tmp_path / "b").public


def test_half_made_key_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("cut short")
    pair = key_pair(tmp_path / "key")
    assert paramiko.Ed25519Key.from_private_key_file(str(pair.private)).get_base64()


def test_dropbear_form_ends_with_the_public_half(tmp_path: Path) -> None:
    pair = key_pair(tmp_path / "key")
    packed = dropbear_form(pair.private)
    blob = base64.b64decode(pair.public.split()[1])
    assert len(packed) == 4 + 11 + 4 + 64
    assert packed[:15] == blob[:15]
    assert packed[-32:] == blob[-32:]
