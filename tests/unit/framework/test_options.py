"""Options: one table, checked values, no unknown names, and a reference page that matches."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import msgspec
import pytest
from sojourn.errors import NotConfigured
from sojourn.options import SETTINGS, Options, options_table

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "options.md"


def test_the_defaults_are_those_of_the_contract() -> None:
    options = Options()
    assert options.relocation_chunk_bytes == 256 * 1024
    assert options.relocation_cutover_wait_ms == 1_000
    assert options.session_seal_timeout_ms == 3_000
    assert options.relocation_in_flight_bytes == 16 * 1024 * 1024
    assert options.relocation_node_in_flight_bytes == 0
    assert options.relocation_commit_reserve_ms == 10_000
    assert options.follow_duration_ms == 30_000
    assert options.route_cache_age_ms == 15_000
    assert options.marker_limit_ms == 2_000
    assert options.lease.ttl_ms == 15_000
    assert options.max_frame_bytes == 1024 * 1024
    assert options.worker_unresponsive_s == 30


def test_every_setting_says_its_type_unit_range_and_meaning() -> None:
    assert list(SETTINGS) == list(Options.__struct_fields__)
    for name, (expected, setting) in SETTINGS.items():
        assert expected in (int, str, bool)
        assert setting.low <= setting.high
        assert setting.doc.endswith("."), name
        for ending, unit in (("_ms", "ms"), ("_s", "s"), ("_bytes", "bytes")):
            if name.endswith(ending):
                assert setting.unit == unit, name


@pytest.mark.parametrize("name", [name for name, (kind, _) in SETTINGS.items() if kind is int])
def test_both_ends_of_every_range_are_checked(name: str) -> None:
    setting = SETTINGS[name][1]
    for value in (setting.low - 1 if setting.zero is None or setting.low > 1 else -1, setting.high + 1, -1):
        if value == 0 and setting.zero is not None:
            continue
        with pytest.raises(NotConfigured) as caught:
            Options.from_mapping({name: value})
        text = str(caught.value)
        assert f"option {name} = {value} is out of range" in text
        assert setting.allowed in text


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("request_timeout_ms", 1.5, "has the type float, not int"),
        ("request_timeout_ms", True, "has the type bool, not int"),
        ("request_timeout_ms", "30", "has the type str, not int"),
        ("allow_pickle", 1, "has the type int, not bool"),
        ("cluster", "", "is out of range: allowed is 1 to 64 bytes of text"),
        ("cluster", "ü" * 33, "is out of range"),
        ("cluster", "ü", "printable ASCII"),
        ("cluster", "a{b}", "without braces"),
        ("cluster", "a\n", "printable ASCII"),
        ("cluster", "\ud800", "is not valid Unicode"),
        ("cluster", b"x", "has the type bytes, not str"),
        ("store_url", "x" * 3000, "is out of range: allowed is empty (chosen by the launcher) or 1 to 2048"),
    ],
)
def test_a_bad_value_is_named_with_what_is_allowed(name: str, value: object, problem: str) -> None:
    with pytest.raises(NotConfigured) as caught:
        Options.from_mapping({name: value})
    assert problem in str(caught.value)
    assert name in str(caught.value)
    assert len(str(caught.value)) < 400


def test_an_unknown_name_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(NotConfigured, match="unknown option 'lease_tll_ms': did you mean lease_ttl_ms"):
        Options.from_mapping({"lease_tll_ms": 1})
    with pytest.raises(NotConfigured, match="known are cluster, secret"):
        Options.from_mapping({"???": 1})
    with pytest.raises(
        NotConfigured, match="unknown option 'request_timeout': did you mean request_timeout_ms"
    ):
        Options(request_timeout=1)  # type: ignore[call-arg]
    with pytest.raises(NotConfigured, match="options are named"):
        Options(5)  # type: ignore[misc, arg-type]


def test_zero_is_a_value_of_its_own_where_the_table_says_so() -> None:
    options = Options(relocation_in_flight_bytes=0, handler_deadline_ms=0, max_queued_jobs=0)
    assert options.relocation_in_flight_bytes == 0
    with pytest.raises(NotConfigured, match=r"allowed is 0 \(off\) or 1024 to"):
        Options(relocation_in_flight_bytes=5)


def test_a_lease_that_one_late_renewal_would_end_is_refused() -> None:
    """B6.4: max(interval, timeout) + timeout < TTL - margin."""
    with pytest.raises(NotConfigured, match="need 10000 ms, which must be less than"):
        Options(lease_renew_ms=7_000)
    assert Options(lease_renew_ms=6_999).lease_renew_ms == 6_999


def test_a_route_may_not_outlive_the_follow_route() -> None:
    """B9.1: the route cache age is at least 5 s shorter than the follow duration."""
    with pytest.raises(NotConfigured, match="route_cache_age_ms = 15000 must be at least 5000 ms less"):
        Options(follow_duration_ms=19_999)
    assert Options(follow_duration_ms=20_000).follow_duration_ms == 20_000


def test_a_worker_is_logged_before_it_is_killed() -> None:
    with pytest.raises(NotConfigured, match="worker_silent_ms = 1001"):
        Options(worker_silent_ms=1_001, worker_unresponsive_s=1)


def test_the_queue_scales_with_the_processors_unless_set() -> None:
    assert Options().queued_jobs(4) == 512
    assert Options().queued_jobs(0) == 128
    assert Options(max_queued_jobs=100).queued_jobs(4) == 100


def test_options_survive_the_way_to_a_worker() -> None:
    options = Options(cluster="arena", secret="s" * 32, handler_deadline_ms=5)
    values = msgspec.msgpack.decode(msgspec.msgpack.encode(options.to_mapping()))
    assert Options.from_mapping(values) == options
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.to_mapping(with_secret=False)["secret"] == ""


def test_the_secret_is_never_shown() -> None:
    options = Options(secret="correct horse battery staple", cluster="c" * 64)
    assert "horse" not in repr(options)
    assert repr(options) == f"Options(cluster={'c' * 64!r}, secret=(not shown))"
    assert dict(options.__rich_repr__())["secret"] != options.secret
    with pytest.raises(NotConfigured) as caught:
        Options(secret="too short")
    assert "too short" not in str(caught.value)


def test_the_reference_page_holds_the_table_of_the_code() -> None:
    assert options_table() in REFERENCE.read_text("utf-8"), (
        "docs/reference/options.md is out of date: "
        "python -c 'import sojourn.options as o; print(o.options_table())' prints the table it must hold"
    )


def test_every_option_is_read_by_something() -> None:
    """An option that nobody reads is a promise that is not kept."""
    root = Path(__file__).parents[3]
    folders = ("framework", "spots", "store", "workers")
    read = set[str]()
    for folder in folders:
        for source in (root / folder).rglob("*.py"):
            read |= {
                node.attr
                for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            }
    assert [option for option in SETTINGS if option not in read] == []
