"""NVIDIA's management library by its own Python binding: loaded once, its errors as they are meant.

Why: "not supported" on a card without ECC is a fact and no fault, a GPU that is lost answers 15 to
everything, and a driver that is older than the binding knows other structs. How: each is told apart
here by its number (nvml.h, nvmlReturn_t); whoever asks gets ABSENT or learns why.
"""

import importlib
from typing import Any, Final

from nemesis.producers.node.probe import NotReadError
from nemesis.schemas.watched import ProbeState

NOT_KNOWN: Final = frozenset({2, 3, 6, 13, 25})
"""Not supported, or nothing of that kind; function not found: an older driver; argument version
mismatch: another struct."""
NO_PERMISSION: Final = 4
LOST: Final = 15
RESET_REQUIRED: Final = 16
UNINITIALIZED: Final = 1
_NO_DRIVER: Final = frozenset({9, 12})
"""Driver not loaded; library not found."""


class NvmlCallError(Exception):
    """The library answered with an error."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code: Final = code


class Nvml:
    """The library, ready to be asked."""

    def __init__(self, binding: Any) -> None:
        """`binding`: the module pynvml."""
        self.binding: Final = binding

    def call(self, name: str, *arguments: Any) -> Any:
        """What a function of the binding returns.

        Raises:
            NvmlCallError: the library answered with an error.
        """
        function = getattr(self.binding, name, None)
        if function is None:
            raise NvmlCallError(13)  # the binding is older than we
        try:
            return function(*arguments)
        except self.binding.NVMLError as error:
            raise NvmlCallError(int(error.value)) from error

    def words(self, code: int) -> str:
        """An error in the library's own words."""
        try:
            return str(self.binding.nvmlErrorString(code))
        except (self.binding.NVMLError, AttributeError):
            return f"error {code}"


def load() -> Nvml:
    """The library, initialized.

    Raises:
        NotReadError: there is no binding, no library, or no driver that answers.
    """
    try:
        nvml = Nvml(importlib.import_module("pynvml"))
    except ImportError as error:
        hint = "pip install 'nemesis-gpu[nvidia]'"
        says = f"the Python binding of NVML is not installed: {hint}"
        raise NotReadError("absent", says) from error
    try:
        nvml.call("nvmlInit")
    except NvmlCallError as error:
        state: ProbeState = "absent" if error.code in _NO_DRIVER else "broken"
        raise NotReadError(state, f"NVML: {nvml.words(error.code)}") from error
    return nvml
