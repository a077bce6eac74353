"""The `sojourn` command: run a program, run one node, look into wire bytes.

Owns the command line: its options, its exit codes (0 done, 1 failed, 2 wrongly used) and its one-line errors. It
must not know how nodes work.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import inspect
import json
import os
import socket
import sys
import tomllib
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import uvloop
from sojourn import __version__
from sojourn.errors import InvalidOperation, NotConfigured, SojournError
from sojourn.ids import check_rid
from sojourn.options import SETTINGS, Options
from sojourn.workers.logs import LOG_LEVELS
from sojourn.workers.node_control import NodeConfig
from sojourn.workers.program import ProgramReference, missing_module, parse_reference
from sojourn.workers.signals import StopRequests

__all__ = ["main"]

INTERRUPTED = 130
_ANY_ADDRESS = ("0.0.0.0", "::", "*")


class _Parser(argparse.ArgumentParser):
    """Tells a wrong option in one line instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        raise NotConfigured(f"{message} (see `{self.prog} --help`)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["wire"]:
            from sojourn.workers.wire_command import run_wire

            return run_wire(words[1:])
        chosen, unknown = _parser().parse_known_args(words)
        if unknown:
            raise NotConfigured(
                f"unrecognized arguments: {' '.join(unknown)} (see `sojourn {words[0]} --help`)"
            )
        code: int = chosen.command(chosen)
        return code
    except SojournError as error:
        wrongly_used = isinstance(error, (NotConfigured, InvalidOperation))
        print(f"sojourn: {error}" if wrongly_used else f"sojourn: {error.kind}: {error}", file=sys.stderr)
        return 2 if wrongly_used else 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sojourn", description="Actors and Spots that move between nodes while they run.")
    parser.add_argument("--version", action="version", version=f"sojourn {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    run = commands.add_parser(
        "run",
        help="run a program on a cluster on this machine",
        description="Start nodes on this machine and call the module's `async def main(cluster)`; without one, serve.",
    )
    run.set_defaults(command=_run)
    run.add_argument("program", metavar="MODULE:APP", help="where the App is, for example arena:app")
    run.add_argument("--nodes", type=int, default=2, help="number of nodes (default 2)")
    _common(run)

    node = commands.add_parser("node", help="run one node of a cluster")
    node.set_defaults(command=_node)
    node.add_argument(
        "program", metavar="MODULE:APP", nargs="?", help="where the App is, for example arena:app"
    )
    node.add_argument(
        "--config", metavar="FILE", help="TOML file with the same settings; options win over it"
    )
    node.add_argument(
        "--rid", help="name of the node, unique in the cluster (default: host name and process id)"
    )
    node.add_argument(
        "--listen", metavar="HOST:PORT", help="where it accepts connections (default 127.0.0.1:0)"
    )
    node.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="where other nodes reach it, if not where it listens; port 0 = the port it listens on",
    )
    node.add_argument("--cluster", help="name of the cluster (default sojourn)")
    node.add_argument(
        "--secret-file",
        metavar="FILE",
        help="file with the cluster secret (default: variable SOJOURN_SECRET)",
    )
    node.add_argument("--weight", type=int, help="share of placements, 0 = none (default 100)")
    node.add_argument("--wave", help="maintenance wave (default none)")
    _common(node)

    wire = commands.add_parser("wire", help="decode, encode and check wire bytes", add_help=False)
    wire.set_defaults(command=_run)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, help="worker processes of a node (default 2)")
    parser.add_argument("--store", metavar="URL", help="sqlite:///absolute/path or redis://host:port/db")
    parser.add_argument(
        "--option", metavar="NAME=VALUE", action="append", default=[], help="any other setting; repeatable"
    )
    parser.add_argument("--log-level", choices=LOG_LEVELS, help="least severe level that is logged")


# sojourn run


def _run(chosen: argparse.Namespace) -> int:
    reference = _reference(chosen.program)
    return _in_loop(_run_program(chosen, reference))


async def _run_program(chosen: argparse.Namespace, reference: ProgramReference) -> int:
    from sojourn.workers.local_cluster import LocalCluster
    from sojourn.workers.program import app_of

    module = _import_here(reference)
    cluster = LocalCluster(
        app_of(module, reference, reference.module),
        nodes=chosen.nodes,
        workers=chosen.workers,
        store=chosen.store,
        options=_options(chosen.option),
        log_level=chosen.log_level or "WARNING",
        program=reference,
    )
    user_main = getattr(module, "main", None)
    if user_main is not None and not inspect.iscoroutinefunction(user_main):
        raise NotConfigured(
            f"{reference.module}.main must be `async def main(cluster)`, or have another name"
        )
    if user_main is not None:
        _check_takes_cluster(reference, user_main)
    with StopRequests(interrupt=True) as stops:
        return await _until_stopped(_serve(cluster, user_main), stops)


def _check_takes_cluster(reference: ProgramReference, user_main: Any) -> None:
    try:
        inspect.signature(user_main).bind(None)
    except TypeError:
        raise NotConfigured(
            f"{reference.module}.main is called with the running cluster: write `async def main(cluster)` without "
            "a LocalCluster of its own, give it another name, or start the program with python"
        ) from None


async def _serve(cluster: Any, user_main: Any) -> int:
    async with cluster:
        if user_main is not None:
            result = await user_main(cluster)
            return result if isinstance(result, int) else 0
        rids = ", ".join(node.rid for node in cluster.nodes)
        print(f"serving on {rids}; Ctrl-C stops", file=sys.stderr, flush=True)
        await asyncio.get_running_loop().create_future()
        return 0


async def _until_stopped(work: Coroutine[Any, Any, int], stops: StopRequests) -> int:
    """Run until done; the first request cancels the work, the second its clean-up as well."""
    task = asyncio.ensure_future(work)
    for asked in (stops.graceful, stops.quick):
        waiting = asyncio.ensure_future(asked.wait())
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            break
        task.cancel()
    await asyncio.wait((task,))
    return INTERRUPTED if task.cancelled() else task.result()


def _import_here(reference: ProgramReference) -> Any:
    try:
        return importlib.import_module(reference.module)
    except ModuleNotFoundError as error:
        raise missing_module(reference, error) from None


# sojourn node


def _node(chosen: argparse.Namespace) -> int:
    config = _node_config(chosen, _read_file(chosen.config) if chosen.config else {})
    return _in_loop(_run_one_node(config))


async def _run_one_node(config: NodeConfig) -> int:
    from sojourn.workers.logs import set_up_node_log
    from sojourn.workers.node import NodeSupervisor, real_supervisor, run_node

    def ready(supervisor: NodeSupervisor) -> None:
        told = {
            "ready": config.rid,
            "generation": str(supervisor.run.generation),
            "endpoint": supervisor.endpoint,
            "pid": os.getpid(),
        }
        print(json.dumps(told), flush=True)

    set_up_node_log(config.rid, config.log_level)
    with StopRequests(interrupt=True) as stops:
        in_time = await run_node(config, stops, make_supervisor=real_supervisor, on_ready=ready)
    return 0 if in_time else 1


def _read_file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise NotConfigured(f"the configuration file {path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise NotConfigured(f"the configuration file {path} is not valid TOML: {error}") from None


_FILE_KEYS = (
    "program",
    "rid",
    "listen",
    "advertise",
    "cluster",
    "secret_file",
    "weight",
    "wave",
    "workers",
    "store",
    "log_level",
)


def _node_config(chosen: argparse.Namespace, file: dict[str, Any]) -> NodeConfig:
    values = dict(file)
    options = values.pop("options", {})
    unknown = [name for name in values if name not in _FILE_KEYS]
    if unknown:
        raise NotConfigured(
            f"the configuration file has an unknown setting {unknown[0]!r}: known are {', '.join(_FILE_KEYS)} and "
            "the table [options]"
        )
    values.update({name: value for name in _FILE_KEYS if (value := getattr(chosen, name)) is not None})
    if not isinstance(options, dict):
        raise NotConfigured("`options` in the configuration file must be a table: write [options]")
    options = options | _options(chosen.option)
    for name, setting in (("workers", "workers"), ("store", "store_url"), ("cluster", "cluster")):
        if name in values:
            options[setting] = values[name]
    options.setdefault("workers", 2)
    secret = _secret(values.get("secret_file"))
    if secret:
        options["secret"] = secret
    if not options.get("secret"):
        raise NotConfigured(
            "a node needs the secret that all nodes of its cluster share, 16 bytes or more: put it into a file and "
            "name it with --secret-file, or into the variable SOJOURN_SECRET"
        )
    if not options.get("store_url"):
        raise NotConfigured(
            "a node needs a store that all nodes share: --store sqlite:///absolute/path or redis://host:port/db"
        )
    if str(options["store_url"]).startswith("memory:"):
        raise NotConfigured(
            "memory:// lives in one process and no other node could see it: use sqlite:///absolute/path or "
            "redis://host:port/db"
        )
    if "program" not in values:
        raise NotConfigured(
            "name the program: sojourn node MODULE:APP, or `program` in the configuration file"
        )
    rid = str(values.get("rid") or f"{socket.gethostname()}-{os.getpid()}")
    check_rid(rid.encode())
    fields: dict[str, Any] = {
        "rid": rid,
        "program": _reference(str(values["program"])),
        "options": Options.from_mapping(options),
        **_addresses(values),
        "weight": values.get("weight", 100),
        "wave": values.get("wave", ""),
        "log_level": values.get("log_level", "INFO"),
    }
    if type(fields["weight"]) is not int or fields["weight"] < 0:
        raise NotConfigured(f"weight = {fields['weight']!r} must be a whole number from 0 on")
    if type(fields["wave"]) is not str:
        raise NotConfigured(f"wave = {fields['wave']!r} must be text")
    if fields["log_level"] not in LOG_LEVELS:
        raise NotConfigured(f"log_level = {fields['log_level']!r} must be one of {', '.join(LOG_LEVELS)}")
    return NodeConfig(**fields)


def _secret(path: str | None) -> str:
    if path is None:
        return os.environ.get("SOJOURN_SECRET", "")
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NotConfigured(f"the secret file {path} cannot be read: {error}") from None


def _addresses(values: dict[str, Any]) -> dict[str, Any]:
    """Where the node listens, and where others dial it."""
    advertise = values.get("advertise", "")
    if type(advertise) is not str:
        raise NotConfigured(f"advertise = {advertise!r} must be text, HOST:PORT")
    if advertise:
        _address("advertise", advertise)
    host, port = _address("listen", str(values.get("listen", "127.0.0.1:0")), any_address=bool(advertise))
    return {"host": host, "port": port, "advertise": advertise}


def _address(name: str, text: str, *, any_address: bool = False) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        purpose = "to listen on" if name == "listen" else "to be reached at"
        raise NotConfigured(f"{text!r} is no address {purpose}: write HOST:PORT, for example 127.0.0.1:7000")
    host = host.strip("[]")
    if host in _ANY_ADDRESS and not any_address:
        raise NotConfigured(
            f"{text!r} is every address of this machine, and other nodes could not tell which to connect to: name the "
            "one at which they reach it" + (", or name that one with --advertise" if name == "listen" else "")
        )
    return ("0.0.0.0" if host == "*" else host), int(port)


# shared


def _reference(text: str) -> ProgramReference:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return parse_reference(text)


def _options(pairs: list[str]) -> dict[str, Any]:
    """`name=value` pairs with the values in the types that the options have."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise NotConfigured(f"--option {pair}: write NAME=VALUE")
        expected = SETTINGS[name][0] if name in SETTINGS else str
        try:
            values[name] = msgspec.convert(text, expected, strict=False)
        except msgspec.ValidationError:
            raise NotConfigured(
                f"--option {pair}: {name} takes a value of type {expected.__name__}"
            ) from None
    return values


def _in_loop(work: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


if __name__ == "__main__":
    sys.exit(main())
