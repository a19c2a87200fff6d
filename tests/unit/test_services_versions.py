"""Versions of services: where they listen, what a router is told, and what a board says of them."""

from __future__ import annotations

import json
import os
import subprocess
from ipaddress import ip_address
from pathlib import Path, PurePosixPath

import pytest

from armload.boards.host import Completed
from armload.boards.local import LocalHost
from armload.cli.verbs.service import InstallOptions, UpdateOptions, wanted_models
from armload.core.errors import BoardError, UsageError
from armload.core.shell import render
from armload.engines.server import ServerAddress
from armload.engines.service_plan import ServingPlan
from armload.runs.request import Request
from armload.services.folder import new_api_key
from armload.services.listening import (
    WantedAddress,
    choose_listening,
    exposed_addresses,
    is_public,
    parse_addresses,
)
from armload.services.making import WantedModel, WantedService, check_known, checksums
from armload.services.reaching import keys_in_file
from armload.services.setting_up import refuse_existing
from armload.services.state import check_own, parse_services
from armload.services.updating import _wanted
from armload.services.version import Listening, ServiceLayout, ServiceVersion
from armload.services.version_files import preset_section, router_words
from tests.golden.results import value

KEY = "0123456789abcdef"
IP = """1: lo    inet 127.0.0.1/8 scope host lo
2: eth0    inet 192.168.1.20/24 brd 192.168.1.255 scope global eth0
2: eth0    inet6 fe80::1/64 scope link
5: tailscale0    inet 100.101.2.3/32 scope global tailscale0
"""
IFCONFIG = """eth0      Link encap:Ethernet  HWaddr 52:54:00:12:34:56
          inet addr:10.0.2.15  Bcast:10.0.2.255  Mask:255.255.255.0
          inet6 addr: fec0::5054:ff:fe12:3456/64 Scope: Site
lo        Link encap:Local Loopback
          inet addr:127.0.0.1  Mask:255.0.0.0
"""


@pytest.mark.parametrize(
    ("text", "where", "port"),
    [
        ("192.168.1.20", "192.168.1.20", None),
        ("192.168.1.20:8081", "192.168.1.20", 8081),
        ("eth0", "eth0", None),
        ("eth0:80", "eth0", 80),
        ("100.64.0.0/10:9000", "100.64.0.0/10", 9000),
        ("fd00::1", "fd00::1", None),
        ("[fd00::1]:8080", "fd00::1", 8080),
        (":8081", "", 8081),
    ],
)
def test_what_is_listened_on_is_an_address_an_interface_or_a_network(
    text: str, where: str, port: int | None
) -> None:
    assert WantedAddress.read(text) == WantedAddress(where=where, port=port)


@pytest.mark.parametrize(
    "text", ["", "a b", "1.2.3.4:0", "1.2.3.4:70000", "../x", "[fd00::1", "1.2.3/99", "-eth0"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--listen"):
        WantedAddress.read(text)


def test_a_board_tells_its_addresses_by_ip_or_ifconfig() -> None:
    assert parse_addresses(IP.splitlines()) == {
        ip_address("127.0.0.1"): "lo",
        ip_address("192.168.1.20"): "eth0",
        ip_address("fe80::1"): "eth0",
        ip_address("100.101.2.3"): "tailscale0",
    }
    assert parse_addresses(IFCONFIG.splitlines())[ip_address("10.0.2.15")] == "eth0"
    assert parse_addresses(["nonsense", "inet 300.1.1.1"]) == {}


def test_a_tailnet_is_private_and_the_internet_is_not() -> None:
    private = ("10.0.0.1", "192.168.1.20", "100.101.2.3", "127.0.0.1", "fd00::1", "fe80::1")
    assert not any(is_public(ip_address(each)) for each in private)
    assert all(is_public(ip_address(each)) for each in ("8.8.8.8", "2a00:1450::1", "100.128.0.1"))


class Addressed(LocalHost):
    """A board with these addresses, as its tools tell."""

    said = ""

    def run(self, command: str, *, stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        if "ip -o addr" in command:
            return Completed(status=0, stdout=self.said.encode(), stderr=b"")
        return super().run(command, stdin=stdin, timeout_s=timeout_s)


@pytest.mark.parametrize("where", ["0.0.0.0", "::"])
def test_all_addresses_are_listened_on_only_where_they_are_known_and_private(where: str) -> None:
    host, wanted = Addressed("kitchen"), WantedAddress(where=where, port=None)
    with pytest.raises(BoardError, match="cannot tell whether"):
        choose_listening(host, wanted, {})
    host.said = IP + "3: eth1    inet 8.8.8.8/24 scope global eth1\n"
    with pytest.raises(UsageError, match=r"8\.8\.8\.8 can be reached from the internet"):
        choose_listening(host, wanted, {})
    host.said = IP
    assert choose_listening(host, wanted, {}).addresses == (where,)


@pytest.mark.parametrize(
    ("listens_on", "exposed"),
    [
        ("0.0.0.0", ("8.8.8.8",)),
        ("::", ("8.8.8.8", "2a00:1450::1")),
        ("192.168.1.20", ()),
        ("127.0.0.1", ()),
    ],
)
def test_a_public_address_that_the_board_gets_later_is_noticed(
    listens_on: str, exposed: tuple[str, ...]
) -> None:
    host = Addressed("kitchen")
    listening = Listening(addresses=(listens_on,), port=8080)
    host.said = IP
    assert exposed_addresses(host, listening) == ()
    host.said += "3: ppp0    inet 8.8.8.8/24 scope global ppp0\n3: ppp0    inet6 2a00:1450::1/64\n"
    assert exposed_addresses(host, listening) == exposed


def test_a_service_is_named_by_the_address_that_others_reach() -> None:
    inner = Listening(addresses=("127.0.0.1",), port=8080)
    outer = Listening(addresses=("127.0.0.1", "fd00::1"), port=8080)
    assert (inner.words, inner.is_open) == ("127.0.0.1:8080", False)
    assert (outer.words, outer.is_open) == ("[fd00::1]:8080", True)


def test_a_model_of_several_keeps_its_own_options() -> None:
    words = ["-m", "/m.gguf", "--alias", "m", "-c", "512", "--no-kv-unified", "--temp", "0"]
    section = preset_section("m", [*words, "--seed", "-1", "--jinja", "--lora=a.gguf"])
    assert section.splitlines() == [
        "[m]",
        *("m = /m.gguf", "c = 512", "no-kv-unified = true", "temp = 0"),
        *("seed = -1", "jinja = true", "lora = a.gguf"),
    ]


@pytest.mark.parametrize(
    ("alias", "words"),
    [
        ("a b", []),
        ("a]", []),
        ("m", ["-m", "/a;b.gguf"]),
        ("m", ["-m", "/a#b.gguf"]),
        ("m", ["-m", "/a\nb.gguf"]),
        ("m", ["stray"]),
    ],
)
def test_what_its_file_cannot_hold_is_refused(alias: str, words: list[str]) -> None:
    with pytest.raises(UsageError):
        preset_section(alias, words)


def test_a_program_too_old_for_several_models_is_refused(tmp_path: Path) -> None:
    (tmp_path / "llama-server").write_bytes(b"\x7fELF\0")
    address = ServerAddress(key_file=PurePosixPath("/keys"))
    with pytest.raises(UsageError, match="cannot serve several models"):
        router_words(
            tmp_path / "llama-server",
            address,
            slots=1,
            preset=PurePosixPath("/p"),
            most_loaded=1,
        )


@pytest.mark.parametrize(
    ("told", "host"),
    [
        ("IP addresses to listen on, comma-separated, or UNIX socket paths", "private/server.sock"),
        ("IP addresses to listen on, comma-separated", "127.0.0.1,10.0.0.1"),
        ("ip address to listen on", None),
    ],
)
def test_a_server_listens_behind_its_supervisor_where_its_release_can(
    tmp_path: Path, told: str, host: str | None
) -> None:
    program = tmp_path / "llama-server"
    program.write_bytes(b"\x7fELF\0" + told.encode() + b" (default: %s)\0")
    address = ServerAddress(
        addresses=("127.0.0.1", "10.0.0.1"),
        behind="private/server.sock",
        port=8080,
        key_file=PurePosixPath("/keys"),
    )
    if host is None:
        with pytest.raises(UsageError, match="one address only"):
            address.words(program, 1)
        return
    assert address.words(program, 1)[:4] == ["--host", host, "--port", "8080"]
    assert address.is_behind(program) is host.endswith(".sock")


def test_keys_come_from_a_file_that_nobody_else_can_read(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# mine\nlaptop {KEY}\n\n{KEY}2\n")
    path.chmod(0o644)
    with pytest.raises(UsageError, match="other users of this machine can read"):
        keys_in_file(path)
    path.chmod(0o600)
    assert [(each.name, each.key) for each in keys_in_file(path)] == [
        ("laptop", KEY),
        ("key-2", f"{KEY}2"),
    ]
    for wrong in ("short\n", "# nothing\n", f"a {KEY}\na {KEY}2\n", f"a/b {KEY}\n"):
        path.write_text(wrong)
        with pytest.raises(UsageError):
            keys_in_file(path)


def test_a_key_of_ours_is_random_and_long() -> None:
    keys = {new_api_key("a").key for _ in range(5)}
    assert len(keys) == 5
    assert all(len(each) >= 40 for each in keys)


RECORD = value("installed", dict)["record"]


def told(*lines: str) -> list[str]:
    return ["#up 0e62-boot 500", "#service tutor", *lines]


def test_a_board_tells_its_services() -> None:
    state = {"state": "ready", "version": RECORD["id"], "pid": 7, "ready_s": 100.5, "new": 1}
    fell = {"fell_back": {"from": "b", "why": "8 failures"}}
    (found,) = parse_services(
        told(
            f"#version {RECORD['id']}",
            "#former a",
            "#kept tutor/versions/a/service.json",
            f"#kept tutor/versions/{RECORD['id']}/service.json",
            f"#state {json.dumps({**state, **fell})}",
            "#alive",
            f"#service.json {json.dumps(RECORD)}",
        ),
        "kitchen",
    )
    assert found.record == ServiceVersion.model_validate(RECORD)
    assert (found.condition, found.uptime_s, found.rollback) == ("ready", 399.5, "a")
    assert found.state is not None
    assert found.state.fell_back is not None
    assert (found.state.fell_back.from_, found.state.fell_back.why) == ("b", "8 failures")
    assert found.is_complete


def test_a_service_of_another_user_of_the_board_is_not_changed() -> None:
    host = LocalHost("kitchen")
    (own,) = parse_services(told("#version v"), "kitchen")
    check_own(host, own)
    (another_s,) = parse_services(told("#alive", "#owner bob", "#version v"), "kitchen")
    with pytest.raises(BoardError, match="tutor belongs to the user bob") as refused:
        check_own(host, another_s)
    assert refused.value.remedy == "Log in to kitchen as bob or root."
    with pytest.raises(UsageError, match="named tutor, of the user bob"):
        refuse_existing(host, "tutor", [another_s])


@pytest.mark.parametrize("said", ["stopped", "failed"])
def test_a_supervisor_that_has_left_says_why_until_the_next_boot(said: str) -> None:
    def condition(state: str, boot_id: str) -> str:
        noted = json.dumps({"state": state, "pid": 7, "boot_id": boot_id})
        (found,) = parse_services(told("#version v", f"#state {noted}"), "kitchen")
        return found.condition

    assert condition(said, "0e62-boot") == said
    assert condition(said, "another-boot") == "not running"
    assert condition("ready", "0e62-boot") == "not running"


@pytest.mark.parametrize(
    "hostile", ["{", "[]", "null", '{"state":"odd"}', "{}", '{"fell_back":{"from":1}}', "x" * 99]
)
def test_what_no_supervisor_writes_is_no_state(hostile: str) -> None:
    (found,) = parse_services(
        told("#alive", "#version v", f"#state {hostile}", f"#service.json {hostile}"), "kitchen"
    )
    assert (found.state, found.record, found.condition) == (None, None, "not running")


def test_a_rollback_goes_to_another_version_that_is_there() -> None:
    def target(*lines: str) -> str | None:
        (found,) = parse_services(told("#version b", *lines), "kitchen")
        return found.rollback

    kept = [f"#kept tutor/versions/{each}/service.json" for each in "ab"]
    assert target("#former a", *kept) == "a"
    assert target("#former x", *kept) is None
    assert target("#former b", *kept) is None
    (first,) = parse_services(told("#version b", *kept[1:]), "kitchen")
    assert not first.is_complete


@pytest.mark.parametrize(
    ("version", "former", "trial", "what"),
    [
        ("a", "x", "", None),
        ("a", "x", "a", "note"),
        ("b", "x", "a", "update"),
        ("b", "", "a", "update"),
        ("b", "a", "a", "note"),
        ("a", "a", "b", "rollback"),
    ],
)
def test_what_was_interrupted_is_seen_by_its_notes(
    version: str, former: str, trial: str, what: str | None
) -> None:
    notes = [("version", version), ("former", former), ("trial", trial)]
    lines = [f"#{name} {each}" for name, each in notes if each]
    (found,) = parse_services(told(*lines), "kitchen")
    assert found.interrupted == what


def test_a_supervisor_that_cannot_read_the_boot_s_id_is_understood() -> None:
    for noted in ('"boot_id":null', '"boot_id":""'):
        state = f'{{"state":"failed","pid":7,{noted}}}'
        (found,) = parse_services(told("#version b", f"#state {state}"), "kitchen")
        assert found.state is not None
        assert (found.state.state, found.condition) == ("failed", "not running")


def test_an_update_keeps_what_is_not_named() -> None:
    old = ServiceVersion.model_validate(RECORD)
    (same,) = _wanted(old, None, ServingPlan(slots=3))
    assert same.plan is not None
    assert (same.given, same.plan.slots) == ("word-problems:Q8_0", 3)
    assert (same.plan.context_tokens, same.plan.threads) == (256, 1)
    (other,) = _wanted(old, [WantedModel(given="m.gguf")], ServingPlan())
    assert other.plan is not None
    assert (other.given, other.plan.context_tokens) == ("m.gguf", 256)
    assert "--model" not in other.known


@pytest.mark.parametrize(
    ("typed", "seconds"), [("10m", 600), ("0.2s", 1), ("never", None), (None, None)]
)
def test_a_model_stays_in_memory_unless_it_is_told_to_sleep(
    typed: str | None, seconds: int | None
) -> None:
    words = {"board": "kitchen"} | ({"sleep_idle": typed} if typed else {})
    options = UpdateOptions.typed(words)
    wanted = WantedService(name="llm", models=(), sleep_idle_s=options.sleep_idle)
    assert wanted.sleeps_after_s == seconds
    # An update takes the former time where none is named, and never is one.
    assert bool(options.sleep_idle) == (typed is not None)


def test_a_board_cannot_have_another_file_of_this_machine_sent_to_it() -> None:
    old = ServiceVersion.model_validate(RECORD)
    own = checksums(old.models[0].file, None, None)
    (same,) = _wanted(old, None, ServingPlan())
    check_known(same, own)
    for option in ("--model", "--speculate", "--mmproj", "--lora"):
        with pytest.raises(UsageError, match=f"for {option} differs on this machine"):
            check_known(same, {**own, option: "0" * 64})
    typed = ServingPlan(speculate="draft:d.gguf")
    (chosen,) = _wanted(old, [WantedModel(given="m.gguf")], typed)
    check_known(chosen, {**own, "--model": "0" * 64, "--speculate": "1" * 64})
    with pytest.raises(UsageError, match="for --lora"):
        check_known(chosen, {**own, "--lora": "0" * 64})


def test_each_model_takes_its_own_plan_file(tmp_path: Path) -> None:
    for name, slots in (("a", 1), ("b", 2)):
        (tmp_path / f"{name}.yaml").write_text(f"model: {name}.gguf\nslots: {slots}\n")
    words = {
        "board": "kitchen",
        "plan": f"{tmp_path / 'a.yaml'},{tmp_path / 'b.yaml'}",
        "threads": "4",
    }
    options = InstallOptions.typed(words)
    found = wanted_models(options, Request(board="kitchen"))
    assert [(each.given, each.plan and (each.plan.slots, each.plan.threads)) for each in found] == [
        ("a.gguf", (1, 4)),
        ("b.gguf", (2, 4)),
    ]
    three = InstallOptions.typed({**words, "model": "a,b,c"})
    with pytest.raises(UsageError, match="2 files for 3 models"):
        wanted_models(three, Request(board="kitchen"))


def test_every_file_of_a_version_is_on_the_storage_before_its_name(tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    (versions / ".b.part" / "environment").mkdir(parents=True)
    for name in ("start", "models.ini", "environment/one", "environment/two"):
        (versions / ".b.part" / name).write_text("")
    values = {"versions": PurePosixPath(versions), "part": ".b.part", "id": "b"}
    noting = f'sync() {{ [ -e ../b ] || printf "%s\\n" "$@" >>{tmp_path}/synced; }}\n'
    script = noting + render("service/settle.sh.j2", values)
    assert subprocess.run(["sh", "-c", script], check=False).returncode == 0
    synced = (tmp_path / "synced").read_text().split()
    assert {"start", "models.ini", "environment/one", "environment/two", "."} <= set(synced)
    assert (versions / "b" / "environment" / "two").exists()


def test_a_name_that_no_service_can_have_is_none() -> None:
    lines = ["#up b 7", "#service ../x", "#version a", "#service a\x1b[2J", "#service tutor"]
    assert [each.name for each in parse_services(lines, "kitchen")] == ["tutor"]


def test_a_version_is_switched_so_that_every_moment_has_a_whole_one(tmp_path: Path) -> None:
    """The script is stopped before each of its renames; what is in force then is complete."""
    layout = ServiceLayout(workdir=PurePosixPath(tmp_path), name="tutor")
    folder = Path(layout.folder)
    for version in ("a", "b"):
        (folder / "versions" / version).mkdir(parents=True)
        (folder / "versions" / version / "start").write_text("")
    (folder / "version").write_text("a\n")
    values = {"folder": layout.folder, "id": "b", "trial": "a", "former": "a", "confirmed": False}
    script = render("service/switch.sh.j2", {**values, "removed": []})
    for stopped_at in range(1, 4):
        counting = (
            f'n=0\nmv() {{ n=$((n + 1)); [ $n -lt {stopped_at} ] || exit 9; command mv "$@"; }}\n'
        )
        (folder / "version").write_text("a\n")
        (folder / "trial").unlink(missing_ok=True)
        assert os.waitstatus_to_exitcode(os.system(f"sh -c {json_quoted(counting + script)}")) == 9
        now = (folder / "version").read_text().strip()
        assert (folder / "versions" / now / "start").exists()
        if now == "b":
            assert (folder / "trial").read_text().strip() == "a"


def json_quoted(text: str) -> str:
    from armload.core.shell import quote

    return quote(text)
