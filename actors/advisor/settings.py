"""What the advisor may cost and which model it is: one TOML file, checked before anything is sent.

The file that comes with the release says every value; a person's own file says what differs. No key
is in it: a key lies in the environment or in a file that only its owner may read (`key.py`).
"""

from importlib import resources
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import msgspec

from nemesis.schemas.errors import NemesisError
from nemesis.streams.documents import explained, read_toml

SHIPPED: Final = "advisor.toml"
LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
MILLION: Final = 1_000_000


class BadAdvisorSettingsError(NemesisError):
    """A settings file of the advisor that breaks a rule."""

    exit_code = 2


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file: a name that is misspelt would be no limit."""


class Prices(_Table, frozen=True, kw_only=True):
    """Micro-USD a million tokens."""

    input_microusd: int
    output_microusd: int
    cache_write_microusd: int
    cache_read_microusd: int

    def cost_microusd(
        self, *, tokens_in: int, tokens_out: int, cache_write: int = 0, cache_read: int = 0
    ) -> int:
        """What so many tokens cost, rounded up."""
        exact = (
            tokens_in * self.input_microusd
            + tokens_out * self.output_microusd
            + cache_write * self.cache_write_microusd
            + cache_read * self.cache_read_microusd
        )
        return -(-exact // MILLION)


class Budget(_Table, frozen=True, kw_only=True):
    """Limits on one advice, on one answer in it, and on a day of the cell."""

    requests_max: int
    calls_max: int
    malformed_calls_max: int
    tokens_in_max: int
    tokens_out_max: int
    cost_microusd_max: int
    seconds_max: float
    answer_tokens_max: int
    answer_chars_max: int
    day_cost_microusd_max: int
    day_advices_max: int


class Retries(_Table, frozen=True, kw_only=True):
    """How often one request is sent, and how long is waited."""

    tries_max: int
    first_wait_seconds: float
    wait_seconds_max: float
    connect_seconds: float
    silence_seconds: float


class Settings(_Table, frozen=True, kw_only=True):
    """All of the file."""

    model: str
    effort: Literal["", "low", "medium", "high"]
    base_url: str
    key_file: str
    prices: Prices
    budget: Budget
    retries: Retries

    def broken(self) -> tuple[str, ...]:
        """One sentence for each rule that the values break."""
        found: list[str] = []
        for name in ("prices", "budget", "retries"):
            table: Any = getattr(self, name)
            least = 0 if name == "prices" else 1
            for field in table.__struct_fields__:
                value: int | float = getattr(table, field)
                if value < 0 or (value < least and isinstance(value, int)):
                    found.append(f"{name}.{field} is {value}, expected at least {least}")
        if not self.model.strip():
            found.append("model is empty, expected the name of a model")
        if why := _unsafe(self.base_url):
            found.append(f"base_url {self.base_url[:60]!r} {why}")
        return tuple(found)


def _unsafe(url: str) -> str:
    """Why the key must not be sent there, "" where it may."""
    try:
        parts = urlsplit(url)
        host, told = parts.hostname, parts.username or parts.password or parts.query
    except ValueError:
        return "is no URL"
    if not host or parts.scheme not in ("http", "https"):
        return "is no URL, expected https://HOST"
    if told:
        return "holds more than a place, expected https://HOST"
    if parts.scheme == "http" and host not in LOOPBACK:
        return "would send the key in the clear, expected https"
    return ""


def settings_of(path: Path | None = None) -> Settings:
    """The settings of the release, and over them those of a person's own file.

    Raises:
        BadDocumentError: no such file, or not TOML.
        BadAdvisorSettingsError: a name or a value that cannot be; says which.
    """
    with resources.as_file(resources.files("nemesis.actors.advisor") / SHIPPED) as shipped:
        document = read_toml(shipped)
    own = read_toml(path) if path else {}
    for name, value in own.items():
        table = document.get(name)
        both = isinstance(table, dict) and isinstance(value, dict)
        document[name] = (table or {}) | value if both else value
    where = str(path or SHIPPED)
    try:
        settings = msgspec.convert(document, Settings)
    except msgspec.ValidationError as error:
        raise BadAdvisorSettingsError(f"{where}: {explained(error, document)}") from error
    if broken := settings.broken():
        raise BadAdvisorSettingsError(f"{where}: {broken[0]}")
    return settings
