"""A zstd file as the bytes in it; that it is broken is an error of reading, like any other."""

import io
from pathlib import Path
from typing import Final

import zstandard

WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024  # what `zstd --long` asks for by default


class ZstdFile(io.RawIOBase):
    """Reads on demand; holds one window."""

    def __init__(self, path: Path) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
        self._stream = decompressor.stream_reader(path.open("rb"), read_across_frames=True)

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """The next bytes.

        Raises:
            OSError: the file is not what zstd wrote.
        """
        try:
            read = self._stream.read(len(buffer))
        except zstandard.ZstdError as error:
            raise OSError(f"broken zstd: {error}") from error
        buffer[: len(read)] = read
        return len(read)

    def close(self) -> None:
        """Close the file, too."""
        if not self.closed:
            self._stream.close()  # type: ignore[no-untyped-call]
        super().close()
