"""Where a store is: URLs, namespaces, mounts, the boot clock, and the face that opens stores."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from sojourn.errors import NotConfigured
from sojourn.location import Applied, Found, Missing, Put, StoreUnavailable
from sojourn.store import clock, open_location_store, open_relocation_store, parse_store_url
from sojourn.store.limits import check_namespace
from sojourn.store.mounts import file_system_of, refuse_network_file_system
from sojourn.store.urls import without_password

MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:30 / /srv rw shared:1 - nfs4 server:/srv rw
31 30 0:31 / /srv/local\040disk rw - xfs /dev/vdb rw
32 27 0:32 / /over rw - ext4 /dev/vdc rw
33 27 0:33 / /over rw - fuse.sshfs host:/ rw
not a mount line
1 2 - short
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/s.db", "ext4"),
        ("/srv/s.db", "nfs4"),
        ("/srv/local disk/s.db", "xfs"),
        ("/srvother/s.db", "ext4"),
        ("/over/s.db", "fuse.sshfs"),
        ("/proc/x", "proc"),
    ],
)
def test_the_longest_and_latest_mount_counts(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind


def test_network_file_systems_are_refused_with_a_way_out() -> None:
    for path in ("/srv/s.db", "/over/s.db"):
        with pytest.raises(NotConfigured, match=r"network file system .* use a redis:// store"):
            refuse_network_file_system(Path(path), MOUNTS)
    refuse_network_file_system(Path("/srv/local disk/s.db"), MOUNTS)
    assert file_system_of(Path("/x"), "") is None


def test_the_mounts_of_this_machine_are_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_network_file_system(tmp_path / "s.db")
    told = tmp_path / "mountinfo"
    told.write_text(f"36 35 0:1 / {tmp_path} rw - nfs4 server:/ rw\n")
    monkeypatch.setattr("sojourn.store.mounts._MOUNTS", told)
    with pytest.raises(NotConfigured, match="nfs4"):
        refuse_network_file_system(tmp_path / "s.db")
    monkeypatch.setattr("sojourn.store.mounts._MOUNTS", tmp_path / "none")
    refuse_network_file_system(tmp_path / "s.db")


@pytest.mark.parametrize(
    ("url", "scheme", "location"),
    [
        ("memory://", "memory", ""),
        ("memory://one", "memory", "one"),
        ("sqlite:///var/lib/s.db", "sqlite", "/var/lib/s.db"),
        ("sqlite:///with%20space/s.db", "sqlite", "/with space/s.db"),
        ("redis://host:6379/1", "redis", "redis://host:6379/1"),
        ("rediss://user:secret@host", "redis", "rediss://user:secret@host"),
        ("unix:///run/redis.sock", "redis", "unix:///run/redis.sock"),
    ],
)
def test_urls_that_providers_take(url: str, scheme: str, location: str) -> None:
    parsed = parse_store_url(url)
    assert (parsed.scheme, parsed.location) == (scheme, location)
    assert "secret" not in repr(parsed)


@pytest.mark.parametrize(
    "url",
    [
        "", "store.db", "/var/s.db", "sqlite://", "sqlite:///", "sqlite:///dir/", "sqlite://host/s.db", "sqlite:s.db",
        "sqlite:///s.db?mode=ro", "redis://", "redis:///0", "redis://:secret@host:port", "http://:secret@x",
        "mysql://u:secret@h/x",
    ],
)  # fmt: skip
def test_urls_that_nobody_takes_show_the_forms_there_are(url: str) -> None:
    with pytest.raises(NotConfigured, match="sqlite:///") as caught:
        open_location_store(url, "n")
    assert "secret" not in str(caught.value)


def test_a_password_is_left_out_of_what_people_read() -> None:
    assert without_password("redis://user:secret@host:1/0?password=secret") == "redis://…@host:1/0"
    assert without_password("no url") == "no url"


@pytest.mark.parametrize("namespace", ["", "x" * 65, "a{b", "ü", "a\n"])
def test_bad_namespaces_are_refused(namespace: str) -> None:
    with pytest.raises(NotConfigured, match="namespace"):
        check_namespace(namespace)


@pytest.mark.parametrize("scheme", ["memory", "sqlite"])
async def test_stores_are_opened_by_url_and_share_rows(scheme: str, tmp_path: Path) -> None:
    url = "memory://shared" if scheme == "memory" else f"sqlite://{tmp_path}/s.db"
    first, second, other = (open_location_store(url, name) for name in ("n", "n", "m"))
    blobs = open_relocation_store(url, "n")
    assert isinstance(await first.write([], [Put("a", b"1")]), Applied)
    assert isinstance(await second.read("a"), Found)
    assert isinstance(await other.read("a"), Missing)
    assert await blobs.put("a", b"blob")
    for store in (first, second, other, blobs):
        await store.close()


async def test_redis_stores_are_opened_by_url(redis_url: str) -> None:
    store = open_location_store(redis_url, "opened")
    blobs = open_relocation_store(redis_url, "opened")
    assert isinstance(await store.write([], [Put("a", b"1")]), Applied)
    assert await blobs.put("a", b"blob")
    await store.close()
    await blobs.close()


async def test_memory_rows_go_with_their_last_store() -> None:
    store = open_location_store("memory://gone", "n")
    await store.write([], [Put("a", b"1")])
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.read("a")
    del store
    again = open_location_store("memory://gone", "n")
    assert isinstance(await again.read("a"), Missing)
    await again.close()


def test_the_clock_is_that_of_the_boot() -> None:
    before = time.monotonic_ns() // 1_000_000
    assert clock.boot_clock_ms() >= before
    assert clock.boot_identity() == clock.boot_identity() != ""


def test_other_systems_have_a_boot_clock_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[-1] == "kern.bootsessionuuid"
        return subprocess.CompletedProcess(command, 0, "uuid\n", "")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(subprocess, "run", asked)
    assert clock.boot_identity() == "uuid"
    assert clock.boot_clock_ms() > 0
