"""What each init system is told of a service is what it reads back, whatever the names are."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.boot import BootFacts, UnusableInit
from armload.boards.host import Completed
from armload.boards.local import LocalHost
from armload.build.helper import SUPERVISE, helper
from armload.build.target import machine_architecture
from armload.core.errors import BoardError, UsageError
from armload.core.shell import render
from armload.services.folder import end_by_hand
from armload.services.init_systems import (
    Cron,
    InitSystem,
    OpenHarmony,
    OpenRC,
    Systemd,
    SystemdUser,
    SysV,
    as_root,
    choose,
    systemd_word,
)
from armload.services.installing import act, install_unit, remove_unit, unit_state
from armload.services.setting_up import BoardInit, own_user
from armload.services.unit import UnitFacts, check_name, presence
from armload.services.users import hand_over, remove_user, user_for
from tests.cron_stand_in import put_crontab
from tests.openharmony_init import OpenHarmonyInit, RefusedError
from tests.supervised import ServiceFolder
from tests.waiting import wait_until

SHELLS = (["dash"], ["mksh"], ["busybox", "sh"])
ROOT = BootFacts(user="root", uid=0, root="login", home=PurePosixPath("/root"))
PI = BootFacts(user="pi", uid=1000, root="sudo", home=PurePosixPath("/home/pi"))
QUOTED = r""""/srv/it's 100%% \"a\" #1 \\n $HOME `id` *"""
ODD = 'it\'s 100% "a" #1 \\n $HOME `id` *'


def unit_in(folder: Path | PurePosixPath, **changed: object) -> UnitFacts:
    return UnitFacts(name="chat", folder=PurePosixPath(folder), **changed)


@pytest.mark.parametrize("name", ["chat", "Chat-2_b", "9", "a" * 40])
def test_a_name_is_letters_digits_and_two_signs(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "a/b", "..", "a b", "-n", "_x", "ü", "a" * 41, "a\n", "a.b", "a%n", "$x"]
)
def test_anything_else_names_no_service(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid service name"):
        UnitFacts(name=name, folder=PurePosixPath("/w/services/x"))


@pytest.mark.parametrize("folder", ["relative", "/a\nb", "/a\x1b[2J"])
def test_a_folder_that_no_file_can_name_is_refused(folder: str) -> None:
    with pytest.raises(UsageError, match="cannot lie in"):
        unit_in(PurePosixPath(folder))


def test_whose_a_unit_is_and_whether_it_was_edited_is_in_its_mark() -> None:
    unit = unit_in(PurePosixPath("/w/services/chat"))
    (file,) = Systemd(PI).files(unit)
    assert presence("", "chat", unit.folder) == "absent"
    assert presence(file.content, "chat", unit.folder) == "installed"
    assert presence(file.content.replace("60", "90"), "chat", unit.folder) == "edited"
    assert presence(file.content, "chat", PurePosixPath("/other/services/chat")) == "another's"
    assert presence("[Service]\nExecStart=/bin/true\n", "chat", unit.folder) == "another's"


def keys(text: str) -> dict[str, str]:
    return dict(re.findall(r"(?m)^(\w+)=(.*)$", text))


def test_systemd_reads_names_and_folders_as_they_are() -> None:
    assert systemd_word('a "b" 5% \\') == '"a \\"b\\" 5%% \\\\"'
    folder = PurePosixPath("/srv", ODD)
    unit = unit_in(folder, description=f"{ODD}\n[Service]\nUser=root \\", memory_max_bytes=1 << 30)
    (file,) = Systemd(PI).files(unit)
    found = keys(file.content)
    assert found["ExecStart"].endswith(QUOTED.replace("$", "$$") + '/run"')
    assert found["ReadWritePaths"] == f'{QUOTED}"'
    assert found["Description"].startswith("armload: it's 100%% ")
    assert not found["Description"].endswith("\\")
    assert found["User"] == "pi"
    assert found["MemoryMax"] == str(1 << 30)


def test_a_service_of_the_user_s_systemd_has_no_user_and_no_root_s_sandbox() -> None:
    (file,) = SystemdUser(PI).files(unit_in(PurePosixPath("/srv/w"), user="armload-chat"))
    assert file.path == PurePosixPath("/home/pi/.config/systemd/user/armload-chat.service")
    found = keys(file.content)
    assert not {"User", "ProtectSystem", "CapabilityBoundingSet"} & found.keys()
    assert found["WantedBy"] == "default.target"


@pytest.mark.parametrize(
    ("folder", "home", "has_own_tmp"),
    [("/srv/w/x", "yes", True), ("/home/pi/x", "read-only", True), ("/var/tmp/x", "yes", False)],
)
def test_the_sandbox_leaves_the_folder_in_sight(folder: str, home: str, has_own_tmp: bool) -> None:  # noqa: FBT001
    files = Systemd(PI).files(unit_in(PurePosixPath(folder, "services", "chat")))
    found = keys(files[0].content)
    assert found["ProtectHome"] == home
    assert ("PrivateTmp" in found) == has_own_tmp
    # What lies in /var/tmp is removed after 30 days unless it is named.
    kept = [file.content for file in files[1:]]
    assert [f'x "{folder}"' in text for text in kept] == ([] if has_own_tmp else [True])


@pytest.mark.parametrize("kind", [Systemd, SystemdUser])
def test_systemd_itself_accepts_the_unit(kind: type[Systemd], tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    folder = tmp_path / ODD
    folder.mkdir()
    unit = unit_in(folder, is_public=True, memory_max_bytes=1 << 30, user="root")
    (file, *_) = kind(PI).files(unit)
    path = tmp_path / "armload-chat.service"
    words = [program, *(["--user"] if kind is SystemdUser else []), "verify", "--man=no", str(path)]
    for text, is_right in ((file.content, True), (file.content.replace("=yes", "=maybe"), False)):
        path.write_text(text)
        done = subprocess.run(
            words,
            env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert (done.stderr == "") == is_right, done.stderr


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Path]:
    """A service's folder, with a version that notes each start and waits."""
    folder = tmp_path / ODD / "services" / "chat"
    folder.parent.mkdir(parents=True)
    program = str(helper(SUPERVISE, architecture=machine_architecture()).path)
    made = ServiceFolder(folder, [program])
    made.version("a", "echo started >>starts\nwhile :; do sleep 0.1; done")
    made.use("a")
    values = {"name": "chat", "supervise": program, "folder": folder}
    (folder / "run").write_text(render("service/run.sh.j2", values))
    (folder / "run").chmod(0o755)
    yield folder
    subprocess.run(["sh", folder / "run", "stop"], check=False, timeout=60)


def starts(folder: Path) -> int:
    noted = folder / "starts"
    return len(noted.read_text().splitlines()) if noted.exists() else 0


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_an_init_script_starts_finds_and_ends_its_service(
    shell: list[str], service: Path, tmp_path: Path
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    (file,) = SysV(ROOT).files(unit_in(service, description=ODD))
    script = tmp_path / "armload-chat"
    script.write_text(file.content)

    def run(word: str) -> int:
        words = [*shell, str(script), word]
        return subprocess.run(words, stdout=subprocess.DEVNULL, check=False, timeout=60).returncode

    assert run("status") == 3
    assert run("start") == 0
    wait_until(lambda: starts(service) == 1)
    assert run("status") == 0
    assert run("start") == 0
    assert run("restart") == 0
    wait_until(lambda: starts(service) == 2)
    assert run("stop") == 0
    assert run("status") == 3
    assert run("stop") == 0
    assert run("dance") == 2


def test_an_openrc_script_does_the_same(service: Path) -> None:
    (file,) = OpenRC(ROOT).files(unit_in(service, description=ODD, is_public=True))
    functions = "ebegin() { :; }; eend() { return $1; }; einfo() { echo $1; }\n"

    def run(word: str) -> int:
        words = ["sh", "-c", f"{functions}{file.content}\n{word}"]
        return subprocess.run(words, stdout=subprocess.DEVNULL, check=False, timeout=60).returncode

    assert run("start") == 0
    wait_until(lambda: starts(service) == 1)
    assert run("status") == 0
    assert run("stop") == 0
    assert run("status") == 3
    assert file.content.startswith("#!/sbin/openrc-run\n")


def test_links_in_runlevels_come_and_go(tmp_path: Path) -> None:
    for level in "0123456":
        (tmp_path / f"rc{level}.d").mkdir()
    init = SysV(ROOT.model_copy(update={"runlevels": PurePosixPath(tmp_path)}))
    unit = unit_in(PurePosixPath("/w/services/chat"))

    def links() -> list[str]:
        return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("rc?.d/*"))

    for _ in range(2):
        subprocess.run(["sh", "-c", init.enable(unit)], check=True)
    assert links() == [
        *(f"rc{level}.d/{name}armload-chat" for level, name in zip("0123456", _LINKS, strict=True))
    ]
    assert (tmp_path / "rc2.d/S99armload-chat").readlink() == Path("../init.d/armload-chat")
    subprocess.run(["sh", "-c", init.disable(unit)], check=True)
    assert not links()


_LINKS = ("K01", "K01", "S99", "S99", "S99", "S99", "K01")


@pytest.fixture
def crontab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program as crontab is, whose table is the file that is returned."""
    programs, table = put_crontab(tmp_path)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return table


def by_cron(line: str) -> str:
    """Return what cron's shell is given of a line (crontab(5): the first % ends the command)."""
    command = line.removeprefix("@reboot ")
    return re.split(r"(?<!\\)%", command)[0]


@pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
def test_cron_starts_the_service_whatever_its_folder_is_called(
    shell: list[str], service: Path, crontab: Path
) -> None:
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    entry = Cron(PI).entry(unit_in(service))
    command = by_cron(entry)
    # BusyBox cuts a line at a "#".
    for whole in (command, command.split("#")[0]):
        before = starts(service)
        with subprocess.Popen([*shell, "-c", whole], start_new_session=True) as cron:
            wait_until(lambda: starts(service) > before)  # noqa: B023 - done within the round
            os.killpg(cron.pid, 9)


def test_a_cron_table_keeps_the_lines_of_others(service: Path, crontab: Path) -> None:
    host, unit, init = LocalHost("kitchen"), unit_in(service), Cron(PI)
    others = "MAILTO=me\n# armload-service mine\n5 4 * * * date +\\%s\n"
    crontab.write_text(others)
    assert install_unit(host, PI, init, unit, overwrite=False) == "written"
    assert crontab.read_text() == f"{others}{init.entry(unit)}\n"
    assert install_unit(host, PI, init, unit, overwrite=False) == "same"
    assert unit_state(host, PI, init, unit).presence == "installed"
    edited = crontab.read_text().replace("@reboot", "@daily ")
    crontab.write_text(edited)
    assert unit_state(host, PI, init, unit).presence == "edited"
    assert install_unit(host, PI, init, unit, overwrite=False) == "kept"
    assert crontab.read_text() == edited
    assert install_unit(host, PI, init, unit, overwrite=True) == "written"
    act(host, PI, init, unit, "start")
    wait_until(lambda: starts(service) == 1)
    assert unit_state(host, PI, init, unit).is_active
    remove_unit(host, PI, init, unit)
    assert crontab.read_text() == others
    assert not unit_state(host, PI, init, unit).is_active


def test_a_cron_table_of_a_service_alone_goes_with_it(service: Path, crontab: Path) -> None:
    host, unit, init = LocalHost("kitchen"), unit_in(service), Cron(PI)
    install_unit(host, PI, init, unit, overwrite=False)
    assert crontab.read_text() == f"{init.entry(unit)}\n"
    remove_unit(host, PI, init, unit)
    assert not crontab.exists()
    remove_unit(host, PI, init, unit)


def test_a_cron_table_that_cannot_be_read_is_left_alone(service: Path, crontab: Path) -> None:
    program = crontab.parent / "bin" / "crontab"
    program.write_text(program.read_text().replace("no crontab for pi", "you may not use crontab"))
    with pytest.raises(BoardError, match="may not use crontab"):
        install_unit(LocalHost("kitchen"), PI, Cron(PI), unit_in(service), overwrite=False)
    assert not crontab.exists()


@pytest.fixture
def short_service(service: Path) -> Iterator[Path]:
    """The same with a path as short as OpenHarmony's init takes it."""
    link = Path(f"/tmp/armload-{os.getpid()}")
    link.symlink_to(service.parent.parent)
    yield link / "services" / "chat"
    link.unlink()


@pytest.mark.parametrize("context", ["u:r:su:s0", ""], ids=["standard", "small"])
def test_openharmony_s_init_starts_the_service_at_each_boot(
    short_service: Path, tmp_path: Path, context: str
) -> None:
    folder = tmp_path / "init"
    folder.mkdir()
    facts = ROOT.model_copy(
        update={"openharmony_folder": PurePosixPath(folder), "security_context": context}
    )
    host, unit = LocalHost("kitchen"), unit_in(short_service)
    init: InitSystem = OpenHarmony(facts)
    assert unit_state(host, facts, init, unit).presence == "absent"
    assert install_unit(host, facts, init, unit, overwrite=False) == "written"
    assert install_unit(host, facts, init, unit, overwrite=False) == "same"
    for boot in (1, 2):
        machine = OpenHarmonyInit(folder, is_small=not context)
        assert list(machine.services) == ["armload-chat"]
        wait_until(lambda: starts(short_service) == boot)  # noqa: B023 - done within the round
        assert unit_state(host, facts, init, unit).is_active
        assert machine.reap() == []
        machine.power_off()
    assert machine.reap() == ["armload-chat"]
    machine.power_off()
    act(host, facts, init, unit, "disable")
    assert not OpenHarmonyInit(folder).services
    act(host, facts, init, unit, "enable")
    assert unit_state(host, facts, init, unit).presence == "installed"
    act(host, facts, init, unit, "disable")
    remove_unit(host, facts, init, unit)
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"sandbox": 0}, "key"),
        ({"name": "a" * 32}, "name"),
        ({"path": []}, "path"),
        ({"path": ["bin/true"]}, "path"),
        ({"path": ["/bin/true"] * 20}, "path"),
        ({"path": ["/bin/sh", "/w/run"]}, "path"),
        ({"uid": "no such user"}, "uid"),
        ({"gid": []}, "gid"),
        ({"once": True}, "once"),
        ({"importance": 1}, "importance"),
        ({"critical": [1, 4, 240]}, "critical"),
        ({"ondemand": 1}, "ondemand"),
        ({"caps": "ALL"}, "caps"),
        ({"secon": "su"}, "secon"),
    ],
    ids=lambda entry: entry if isinstance(entry, str) else "",
)
def test_what_openharmony_s_init_refuses_its_stand_in_refuses(
    tmp_path: Path, changes: dict[str, object], refused: str
) -> None:
    (file,) = OpenHarmony(ROOT).files(unit_in(PurePosixPath("/w")))
    document = json.loads(file.content)
    document["services"][0] |= changes
    (tmp_path / "a.cfg").write_text(json.dumps(document))
    with pytest.raises(RefusedError, match=rf": {refused}$"):
        OpenHarmonyInit(tmp_path, is_small=True)


def test_a_unit_that_somebody_edited_is_kept_unless_it_may_be_overwritten(
    short_service: Path, tmp_path: Path
) -> None:
    facts = ROOT.model_copy(update={"openharmony_folder": PurePosixPath(tmp_path)})
    host, unit, init = LocalHost("kitchen"), unit_in(short_service), OpenHarmony(facts)
    path = tmp_path / "armload-chat.cfg"
    install_unit(host, facts, init, unit, overwrite=False)
    edited = path.read_text().replace('"once": 0', '"once": 1')
    path.write_text(edited)
    state = unit_state(host, facts, init, unit)
    assert (state.presence, state.edited) == ("edited", (PurePosixPath(path),))
    assert install_unit(host, facts, init, unit, overwrite=False) == "kept"
    assert path.read_text() == edited
    assert install_unit(host, facts, init, unit, overwrite=True) == "written"
    assert path.read_text() != edited


def test_what_another_work_folder_installed_stays(short_service: Path, tmp_path: Path) -> None:
    facts = ROOT.model_copy(update={"openharmony_folder": PurePosixPath(tmp_path)})
    host, init = LocalHost("kitchen"), OpenHarmony(facts)
    theirs = unit_in(PurePosixPath("/other/services/chat"))
    install_unit(host, facts, init, theirs, overwrite=False)
    unit = unit_in(short_service)
    with pytest.raises(UsageError, match="already exists"):
        install_unit(host, facts, init, unit, overwrite=False)
    assert remove_unit(host, facts, init, unit) == (PurePosixPath(tmp_path / "armload-chat.cfg"),)
    assert unit_state(host, facts, init, theirs).presence == "installed"
    act(host, facts, init, unit, "start")
    wait_until(lambda: starts(short_service) == 1)
    end_by_hand(host, facts, unit.folder)
    assert not unit_state(host, facts, init, unit).is_active


def test_openharmony_s_limits_are_said_before_anything_is_written() -> None:
    with pytest.raises(BoardError, match="a name of at most 31 bytes"):
        OpenHarmony(ROOT).files(UnitFacts(name="a" * 24, folder=PurePosixPath("/w")))
    OpenHarmony(ROOT).files(UnitFacts(name="a" * 23, folder=PurePosixPath("/w")))
    with pytest.raises(BoardError, match="a path of at most 64 bytes"):
        OpenHarmony(ROOT).files(unit_in(PurePosixPath("/" + "w" * 70)))
    (file,) = OpenHarmony(ROOT).files(unit_in(PurePosixPath("/w", ODD[:30])))
    assert json.loads(file.content)["services"][0]["path"] == [f"/w/{ODD[:30]}/run"]


def test_the_best_is_chosen_and_what_lacks_is_said() -> None:
    facts = PI.model_copy(update={"usable": ("systemd", "cron")})
    assert choose(facts, None, "kitchen").name == "systemd"
    assert choose(facts, "cron", "kitchen").name == "cron"
    with pytest.raises(UsageError, match=r"no init system 'upstart'\.\nChoose one of systemd, "):
        choose(facts, "upstart", "kitchen")
    with pytest.raises(
        BoardError, match=r"--init openrc: the board does not have it\.\nIt can use: systemd, cron"
    ):
        choose(facts, "openrc", "kitchen")
    lack = UnusableInit(name="systemd", reason="this login is not root", remedy="Log in as root.")
    with pytest.raises(BoardError, match=r"systemd: this login is not root\.\nLog in as root\."):
        choose(BootFacts(unusable=(lack,)), None, "kitchen")
    with pytest.raises(
        BoardError, match=r"Looked for systemd, .*, cron; its first process is tini"
    ):
        choose(BootFacts(init="tini"), None, "kitchen")


def test_commands_run_as_root_in_the_way_that_the_board_has() -> None:
    assert as_root("id", ROOT).endswith("\nid")
    assert as_root("echo 'a b'", PI).startswith("sudo -n sh -c ")


def test_a_service_has_a_user_of_its_own_where_that_can_be_made_and_can_read_the_folder() -> None:
    facts = ROOT.model_copy(update={"adds_users": "useradd", "umask": 0o022})
    init = Systemd(facts)
    assert user_for(facts, init, "chat").name == "armload-chat"
    names = {user_for(facts, init, name).name for name in ("Chat", "chat", "a" * 40, "a" * 39)}
    assert len(names) == 4
    assert all(name is not None and re.fullmatch("[a-z][a-z0-9-]{0,30}", name) for name in names)
    for changed, why in (
        ({"adds_users": None}, "nothing on the board can add a user"),
        ({"closed_folder": PurePosixPath("/home/pi")}, "other users cannot enter /home/pi"),
        ({"umask": 0o077}, "umask 077"),
    ):
        chosen = user_for(facts.model_copy(update=changed), init, "chat")
        assert chosen.name is None
        assert why in chosen.reason
    assert user_for(facts, Cron(facts), "chat").name is None


def test_a_script_that_root_starts_by_sudo_becomes_the_login_s_user() -> None:
    chosen = user_for(PI, OpenRC(PI), "chat")
    assert chosen.name == "pi"
    assert chosen.reason.startswith("it runs as pi: ")
    assert user_for(PI, Systemd(PI), "chat").name is None
    assert user_for(ROOT, OpenRC(ROOT), "chat").name is None


class NothingRuns(LocalHost):
    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        raise AssertionError(command)


def test_where_a_service_gets_no_user_of_its_own_the_board_is_left_alone_and_it_is_said() -> None:
    user, note = own_user(NothingRuns("kitchen"), BoardInit(PI, Systemd(PI)), "chat")
    assert user is None
    assert "nothing on the board can add a user" in note


@pytest.mark.parametrize("user", ["root\nExecStartPre=+/bin/sh", "a b", "", "-x", "x/y"])
def test_no_unit_names_a_user_that_no_board_has(user: str) -> None:
    with pytest.raises(UsageError, match="is not a valid user name"):
        unit_in(PurePosixPath("/w/services/chat"), user=user)


def test_a_person_s_user_and_files_are_left_alone() -> None:
    host = NothingRuns("kitchen")
    remove_user(host, PI, "pi")
    hand_over(host, PI, Systemd(PI), unit_in(PurePosixPath("/w/services/chat"), user="pi"))
    with pytest.raises(AssertionError, match="userdel"):
        remove_user(host, PI, "armload-chat")
