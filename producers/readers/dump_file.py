"""Reads flight-recorder dumps from files that nobody vouches for.

A pickle can run code and can ask for terabytes. The unpickler knows no class, so nothing can be
called (CPython documentation, "Restricting Globals"), and while it runs the process may grow by
one gibibyte at most: some opcodes allocate what they claim, not what they bring.
"""

import io
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from nemesis.producers.flight_recorder import BadDumpError

DUMP_BYTES_MAX: Final = 256 * 1024 * 1024
GROWTH_BYTES_MAX: Final = 1024 * 1024 * 1024
_SIZE_FILE: Final = Path("/proc/self/statm")


class _PlainUnpickler(pickle.Unpickler):
    """Numbers, text, lists and maps; everything else is refused."""

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        raise BadDumpError(
            f"pickle names {module_name[:40]}.{global_name[:40]}: a dump holds plain values only"
        )


def load_pickle(payload: bytes) -> object:
    """What a pickle of plain values holds; nothing of it is run.

    Raises:
        BadDumpError: truncated, corrupt, too large, or it names a class or function.
    """
    if len(payload) > DUMP_BYTES_MAX:
        raise BadDumpError(f"{len(payload)} bytes, a dump has at most {DUMP_BYTES_MAX}")
    try:
        with _bounded_growth():
            return _PlainUnpickler(io.BytesIO(payload)).load()
    except BadDumpError:
        raise
    except MemoryError as error:
        raise BadDumpError("pickle asks for more memory than any dump needs") from error
    except Exception as error:  # a corrupt pickle raises whatever its opcodes stumble over
        what = str(error) or type(error).__name__
        raise BadDumpError(f"broken pickle: {what[:120]}") from error


def load_json(payload: bytes) -> object:
    """What a JSON dump holds.

    Raises:
        BadDumpError: no JSON, or too large.
    """
    if len(payload) > DUMP_BYTES_MAX:
        raise BadDumpError(f"{len(payload)} bytes, a dump has at most {DUMP_BYTES_MAX}")
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadDumpError(f"broken JSON: {error}") from error


@contextmanager
def _bounded_growth() -> Iterator[None]:
    """Where the kernel says how large the process is: on Linux."""
    if not _SIZE_FILE.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(_SIZE_FILE.read_text().split()[0])
    limit = pages * resource.getpagesize() + GROWTH_BYTES_MAX
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
