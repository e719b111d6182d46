"""What tests share: the public data beside the checkout, and a home of their own."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples in every run, and no promise about time: a loaded machine fails no test.
settings.register_profile(
    "nemesis", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("nemesis")

ROOT = Path(__file__).parent.parent


def pytest_configure() -> None:
    """A shell starts what it puts in the background deaf to Ctrl-C, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Share the tests among workers: a file's stay together, but for those that may lie `apart`;
    those with real servers are one share.

    Two real clusters side by side would wait for each other; calculations beside one do no harm.
    The share with servers takes longest, so it comes first.
    """
    with_servers = {item for item in items if item.get_closest_marker("server")}
    for item in items:
        share = item.nodeid if item.get_closest_marker("apart") else str(item.path)
        share = "server" if item in with_servers else share
        item.add_marker(pytest.mark.xdist_group(share))
    items.sort(key=lambda item: item not in with_servers)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Public data and incident cases beside the checkout; the test is skipped without them."""
    folder = ROOT.parent / "shared"
    if not (folder / "data").is_dir():
        pytest.skip("no folder `shared` with public data beside this checkout")
    return folder


@pytest.fixture(autouse=True)
def _own_umask() -> Iterator[None]:
    """A command that shuts its files to others does so for its process, which here is ours."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the state, contexts or cells of whoever runs it."""
    home = tmp_path_factory.mktemp("home")
    for variable, folder in (
        ("HOME", ""),
        ("XDG_STATE_HOME", "state"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_DATA_HOME", "data"),
    ):
        monkeypatch.setenv(variable, str(home / folder))
    monkeypatch.delenv("NEMESIS_STATE_DIR", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
