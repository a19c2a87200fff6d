"""Work folders that are memory, in the words of /proc/mounts and df."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from armload.boards.folder import mount_of, storage_of

HALF, WHOLE = 1_942_316, 3_884_632
SD = "/dev/mmcblk0p2 / ext4 rw,noatime 0 0"
# Raspberry Pi OS: the upper folder lies on a tmpfs of the initramfs, which is out of sight.
PI = "overlay / overlay rw,noatime,lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work 0 0"
UBUNTU = (
    "tmpfs-root /media/root-rw tmpfs rw,relatime 0 0",
    "overlayroot / overlay rw,lowerdir=/media/ro,upperdir=/media/root-rw/overlay,workdir=/w 0 0",
)
CONTAINER = "overlay / overlay rw,lowerdir=/l/A:/l/B,upperdir=/var/docker/x/diff,workdir=/w 0 0"
ON_DISK = (
    SD,
    "/dev/sda1 /mnt/disk ext4 rw 0 0",
    "overlay /opt overlay rw,lowerdir=/a,upperdir=/mnt/disk/up,workdir=/mnt/disk/w 0 0",
)


@pytest.mark.parametrize(
    ("mounts", "folder", "size_kib", "kind"),
    [
        ((SD,), "/home/pi", 30_000_000, "storage"),
        ((SD, "tmpfs /tmp tmpfs rw 0 0"), "/tmp/armload", HALF, "memory"),
        ((SD, "none /r ramfs rw 0 0"), "/r/armload", 0, "memory"),
        (("rootfs / rootfs rw 0 0",), "/data", HALF, "memory"),
        ((PI,), "/home/pi", HALF, "memory"),
        (UBUNTU, "/home/u", 1_000_000, "memory"),
        ((CONTAINER,), "/root", 500_000_000, "storage"),
        ((CONTAINER,), "/root", 0, "storage"),
        (ON_DISK, "/opt/armload", HALF, "storage"),
        ((*UBUNTU, "/dev/sda1 /data ext4 rw 0 0"), "/data/armload", HALF, "storage"),
    ],
)
def test_a_folder_is_memory_where_what_is_written_to_it_is(
    mounts: tuple[str, ...], folder: str, size_kib: int, kind: str
) -> None:
    mount = mount_of(PurePosixPath(folder), mounts)
    assert mount is not None
    df = ["Filesystem 1K-blocks Used Available Use% Mounted", f"x {size_kib} 0 {size_kib} 0% /"]
    assert storage_of(mount, mounts, df, WHOLE * 1024) == kind
