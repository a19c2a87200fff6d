"""Virtual boards with the init systems that people have, made from Debian's packages.

They are unpacked as they are, not configured: what their scripts would do is done here, as far as
something needs it. The kernel, and the first programs, are those of every virtual board.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from armload.boards.board import Board, SshAddress, SshReach, VirtualReach
from armload.boards.host import Host
from armload.boards.ssh import SshHost
from armload.boards.virtual import storage
from armload.boards.virtual.image import image_for_boards
from armload.boards.virtual.process import Started, free_port, ssh_answers
from armload.boards.virtual.qemu import GUEST_ADDRESS, Wiring, command_line, qemu_for, start
from armload.boards.virtual.state import dropbear_form, key_pair, last_lines
from armload.core.packages import folder_written_whole, packages_locked, updated_apt
from armload.core.places import cache_folder
from armload.core.private_programs import mke2fs
from armload.core.progress import Silent

_INIT = f"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/usr/lib/modules/$module"; done </usr/lib/modules/order
ifconfig lo 127.0.0.1 up
ifconfig eth0 {GUEST_ADDRESS} netmask 255.255.255.0 up
mkdir /new
mount -t ext4 -o noatime /dev/vda /new
for each in dev proc sys; do mount --move /$each /new/$each || mount -o move /$each /new/$each; done
exec switch_root /new /sbin/init
"""

_COMMON = (
    *("base-files", "bash", "coreutils", "dash", "dropbear-bin", "findutils", "grep", "hostname"),
    *("mount", "passwd", "perl-base", "procps", "sed", "sudo", "util-linux", "libpam-modules"),
)
_FILES = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        "messagebus:x:100:101::/nonexistent:/bin/false\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
        "pi:x:1000:1000::/home/pi:/bin/bash\n"
    ),
    "etc/group": "root:x:0:\ntty:x:5:\nshadow:x:42:\ncrontab:x:102:\nmessagebus:x:101:\n"
    "nogroup:x:65534:\nutmp:x:43:\npi:x:1000:\n",
    "etc/shadow": "root:*:20000:0:99999:7:::\npi:*:20000:0:99999:7:::\n",
    "etc/shells": "/bin/sh\n/bin/bash\n",
    "etc/fstab": "",
    "etc/hostname": "board\n",
    "etc/hosts": "127.0.0.1 localhost board\n",
    "etc/login.defs": "USERGROUPS_ENAB yes\nSYS_UID_MIN 101\nSYS_UID_MAX 999\n",
    "etc/pam.d/common-auth": "auth required pam_permit.so\n",
    "etc/pam.d/common-account": "account required pam_permit.so\n",
    "etc/pam.d/common-password": "password required pam_permit.so\n",
    "etc/pam.d/common-session": "session required pam_permit.so\n",
    "etc/pam.d/common-session-noninteractive": "session required pam_permit.so\n",
    "etc/sudoers.d/pi": "pi ALL=(ALL) NOPASSWD: ALL\n",
}
_DROPBEAR = "dropbear -F -E -s -r /etc/dropbear/host_key -p 22"


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """What a board is made of.

    Attributes:
        name: of its image in the cache; another one where something here changes.
        packages: beside those that all have.
        files: what its packages' scripts would have written.
        links: likewise.
        cores, memory_bytes: of the machine.
    """

    name: str
    packages: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    cores: int = 1
    memory_bytes: int = 512 << 20


_WANTS = "etc/systemd/system/multi-user.target.wants"
SYSTEMD = Distribution(
    name="systemd-2",
    packages=("systemd", "systemd-sysv", "dbus", "libpam-systemd", "cron"),
    files={
        "etc/machine-id": "",
        "etc/pam.d/common-session": "session required pam_permit.so\n"
        "session optional pam_systemd.so\n",
        "etc/pam.d/common-session-noninteractive": "session required pam_permit.so\n"
        "session optional pam_systemd.so\n",
        "etc/systemd/system/dropbear.service": "[Unit]\nDefaultDependencies=no\n"
        "After=local-fs.target\n[Service]\n"
        f"ExecStart=/usr/sbin/{_DROPBEAR}\nRestart=always\nRestartSec=1\n",
    },
    links={
        f"{_WANTS}/dropbear.service": "../dropbear.service",
        f"{_WANTS}/cron.service": "/usr/lib/systemd/system/cron.service",
        "etc/systemd/system/systemd-firstboot.service": "/dev/null",
        "etc/systemd/system/ldconfig.service": "/dev/null",
        "etc/systemd/system/systemd-modules-load.service": "/dev/null",
        "etc/systemd/system/getty.target": "/dev/null",
        "etc/systemd/system/serial-getty@ttyAMA0.service": "/dev/null",
    },
)
OPENRC = Distribution(
    name="openrc-1",
    packages=("openrc", "cron"),
    files={
        "etc/init.d/dropbear": "#!/sbin/openrc-run\ncommand=/usr/sbin/dropbear\n"
        "command_args='-s -r /etc/dropbear/host_key -p 22 -P /run/dropbear.pid'\n"
        "pidfile=/run/dropbear.pid\n",
        "etc/init.d/crond": "#!/sbin/openrc-run\ncommand=/usr/sbin/cron\npidfile=/run/crond.pid\n",
        "etc/rc.conf": 'rc_sys=""\nrc_cgroup_mode="none"\n',
    },
    links={
        "usr/sbin/init": "openrc-init",
        "etc/runlevels/default/dropbear": "/etc/init.d/dropbear",
        "etc/runlevels/default/crond": "/etc/init.d/crond",
    },
)
_MOUNTS = (
    "mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; "
    "mkdir -p /dev/pts; mount -t devpts devpts /dev/pts; mount -t tmpfs run /run; "
    "mount -o remount,rw /"
)
SYSV = Distribution(
    name="sysv-1",
    packages=("sysvinit-core", "sysv-rc", "startpar"),
    files={
        "etc/inittab": "id:2:initdefault:\nsi::sysinit:/etc/mounts\n"
        "l0:0:wait:/etc/init.d/rc 0\nl2:2:wait:/etc/init.d/rc 2\nl6:6:wait:/etc/init.d/rc 6\n"
        f"ss:2:respawn:/usr/sbin/{_DROPBEAR}\n",
        "etc/mounts": f"#!/bin/sh\n{_MOUNTS}\n",
    },
)


VULKAN = Distribution(
    name="vulkan-1",
    packages=(*SYSV.packages, "libvulkan1", "mesa-vulkan-drivers", "vulkan-tools", "libc-bin"),
    files=SYSV.files,
    cores=2,
    memory_bytes=1536 << 20,
)
"""It has Mesa's software driver, which computes on the CPU."""


class InitBoard:
    """A virtual machine of one of them, reached by SSH.

    Args:
        folder: for its disk.
    """

    def __init__(self, distribution: Distribution, folder: Path) -> None:
        self._distribution = distribution
        self._folder = folder
        self._process: Started | None = None
        self._port = free_port()
        self._image = _image(distribution)
        disk = str(self._image / "disk.img")
        subprocess.run(["cp", "--sparse=always", disk, str(folder / "disk.img")], check=True)

    def board(self, user: str, workdir: PurePosixPath) -> Board:
        """Return it as a board that somebody logs in to: root, or pi, who may run sudo."""
        key = self._image / "client_key"
        return Board(
            name=f"{self._distribution.name}-{user}",
            target="armv8-generic",
            reach=SshReach(host="127.0.0.1", port=self._port, user=user, key=key),
            workdir=workdir,
        )

    def host(self, user: str) -> Host:
        address = SshAddress(
            host="127.0.0.1",
            port=self._port,
            user=user,
            key=self._image / "client_key",
            host_key=key_pair(self._image / "host_key").public,
        )
        return SshHost(address, f"{self._distribution.name}-{user}")

    def up(self, within_s: float = 600.0) -> None:
        """Switch it on, and wait until its SSH server answers."""
        image = image_for_boards(Silent())
        qemu = qemu_for("cortex-a55", Silent())
        own = [
            *(storage.folder(name) for name in ("dev", "proc", "sys")),
            *(storage.link(name, "usr/bin") for name in ("bin", "sbin")),
            storage.link("lib", "usr/lib"),
            storage.link("usr/bin/sh", "mksh"),
            *(storage.link(f"usr/bin/{name}", "toybox") for name in _TOOLS),
            storage.file("init", _INIT.encode(), permissions=0o755),
        ]
        initramfs = self._folder / "initramfs.cpio"
        initramfs.write_bytes(image.base.read_bytes() + storage.archive(own))
        wiring = Wiring(
            kernel=image.kernel.resolve(),
            initramfs=initramfs,
            disk=self._folder / "disk.img",
            port=self._port,
            qmp=self._folder / "qmp",
            console=self._folder / "console",
            console_log=self._folder / "console.log",
            qemu_log=self._folder / "qemu.log",
            pid_file=self._folder / "qemu.pid",
        )
        reach = VirtualReach(
            kind="virtual", cores=self._distribution.cores, memory=self._distribution.memory_bytes
        )
        start(qemu, command_line(qemu, reach, wiring, self._distribution.name), wiring.qemu_log)
        self._process = Started.of(int(wiring.pid_file.read_text()))
        deadline = time.monotonic() + within_s
        while not ssh_answers(self._port, 1.0):
            if time.monotonic() > deadline or not self._is_on():
                raise AssertionError(last_lines(wiring.console_log))
            time.sleep(0.2)

    def cut_the_power(self) -> None:
        if self._process is not None and self._process.is_alive():
            os.kill(self._process.pid, signal.SIGKILL)
            assert self._process.wait_gone(10.0)

    def _is_on(self) -> bool:
        return self._process is not None and self._process.is_alive()


_TOOLS = ("ifconfig", "insmod", "mkdir", "mount", "switch_root")


@contextmanager
def running(board: InitBoard) -> Iterator[InitBoard]:
    try:
        board.up()
        yield board
    finally:
        board.cut_the_power()


def _image(distribution: Distribution) -> Path:
    """Return the folder with the disk of a distribution; made from packages the first time."""
    folder = cache_folder() / "images" / f"test-{distribution.name}"
    if not (folder / "disk.img").exists():
        with (
            packages_locked(Silent()),
            updated_apt("arm64", Silent(), purpose="tests") as apt,
            folder_written_whole(folder) as fresh,
        ):
            tree = fresh / "tree"
            tree.mkdir(mode=0o755)
            packages = apt.closure((*_COMMON, *distribution.packages))
            apt.unpack(packages, tree, Silent(), purpose="tests")
            _configure(tree, distribution)
            _write_keys(fresh, tree)
            disk = fresh / "disk.img"
            with disk.open("wb") as file:
                file.truncate(1 << 30)
            words = [*mke2fs(Silent()), "-q", "-F", "-t", "ext4", "-d", str(tree), str(disk)]
            subprocess.run(words, check=True, capture_output=True)
            shutil.rmtree(tree)
    return folder


def _write_keys(folder: Path, tree: Path) -> None:
    (tree / "etc/dropbear/host_key").write_bytes(
        dropbear_form(key_pair(folder / "host_key").private)
    )
    (tree / "etc/dropbear/host_key").chmod(0o600)
    for home, owner in (("root", 0), ("home/pi", 1000)):
        authorized = tree / home / ".ssh/authorized_keys"
        authorized.write_text(f"{key_pair(folder / 'client_key').public}\n")
        os.chown(authorized, owner, owner)


def _configure(tree: Path, distribution: Distribution) -> None:
    for name, text in {**_FILES, **distribution.files}.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755 if text.startswith("#!") else 0o644)
    (tree / "etc/shadow").chmod(0o640)
    (tree / "etc/sudoers.d/pi").chmod(0o440)
    for name, destination in distribution.links.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.symlink_to(destination)
    if not (tree / "usr/bin/sh").exists():
        (tree / "usr/bin/sh").symlink_to("dash")
    for name, mode, owner in (
        ("dev", 0o755, 0),
        ("proc", 0o755, 0),
        ("sys", 0o755, 0),
        ("run", 0o755, 0),
        ("etc/dropbear", 0o700, 0),
        ("root/.ssh", 0o700, 0),
        ("home/pi/.ssh", 0o700, 1000),
        ("var/lib/armload", 0o755, 0),
    ):
        path = tree / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(mode)
        os.chown(path, owner, owner)
    os.chown(tree / "home/pi", 1000, 1000)
    with contextlib.suppress(FileNotFoundError):
        # What the package's script does, so that users reach their tables.
        for name, mode in (("usr/bin/crontab", 0o2755), ("var/spool/cron/crontabs", 0o1730)):
            os.chown(tree / name, 0, 102)
            (tree / name).chmod(mode)
