"""Store URLs: which provider, and where.

Owns parsing and the errors that say what a URL should look like. A password never stands in an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sojourn.errors import NotConfigured

__all__ = ["StoreUrl", "parse_store_url"]

_FORMS = "use sqlite:///absolute/path, redis://host:port/db or memory://name"
_REDIS = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A checked store URL: the provider's name and its own part (a path, a name or the whole URL)."""

    scheme: str
    location: str

    @property
    def path(self) -> Path:
        """The file of an SQLite store."""
        return Path(self.location)

    def __repr__(self) -> str:
        return f"StoreUrl({without_password(self.location)!r})"


def parse_store_url(url: str) -> StoreUrl:
    """Check a store URL.

    Raises:
        NotConfigured: no provider takes it; the text shows the forms there are.
    """
    if not url:
        raise NotConfigured(f"no store is named: set option store_url to that of the cluster; {_FORMS}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise NotConfigured(
            f"store URL {without_password(url)!r} cannot be read ({error}): {_FORMS}"
        ) from None
    if parts.scheme == "memory":
        return StoreUrl("memory", parts.netloc + parts.path)
    if parts.scheme == "sqlite":
        path = unquote(parts.path)
        if parts.netloc or not path.startswith("/") or path.endswith("/") or parts.query or parts.fragment:
            raise NotConfigured(
                f"store URL {url!r} names no file: three slashes and an absolute path, as in "
                f"sqlite:///var/lib/app/sojourn.db"
            )
        return StoreUrl("sqlite", path)
    if parts.scheme in _REDIS:
        if parts.scheme != "unix" and not parts.hostname:
            raise NotConfigured(f"store URL {without_password(url)!r} names no host: {_FORMS}")
        return StoreUrl("redis", url)
    raise NotConfigured(f"store URL {without_password(url)!r} has no scheme that a provider takes: {_FORMS}")


def without_password(url: str) -> str:
    """The URL with its user information left out, for errors and logs."""
    head, separator, rest = url.partition("://")
    if not separator:
        return url
    authority, slash, path = rest.partition("/")
    _, at, host = authority.rpartition("@")
    return f"{head}://{'…@' if at else ''}{host}{slash}{path.partition('?')[0]}"
