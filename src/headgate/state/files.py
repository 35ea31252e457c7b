"""Files: named bytes under one root, on a local disk or on any file system that pyarrow can open.

Every name is relative to the root, with ``/`` between its parts. What is written appears under its name as a whole or
not at all:

    local       written under a temporary name in the same directory, then renamed
    HDFS        the same
    elsewhere   one put, which object stores show when it is complete

A temporary name begins with a dot; ``list`` leaves it out. A process that dies leaves such a file behind and nothing
else; ``stale`` finds it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.fs as pafs
import xxhash

from headgate.errors import StateError

CACHE_BYTES = 20 * 2**30
"""How much of a remote store one host keeps in its cache directory: 20 GiB, a small part of an ordinary local disk,
and room for the state of a few hundred million keys."""

COPY_BYTES = 8 * 2**20
"""The piece in which a remote file is fetched: large enough that the requests do not count, small beside the memory of
a task."""

Names = list[str]

RENAMES = ("hdfs", "viewfs")
"""File systems other than the local one on which a half-written file can be seen, and that can rename."""


@dataclass(frozen=True, slots=True)
class Files:
    """A root directory on some file system. Picklable and comparable: only the addresses travel.

    ``sync`` makes every write wait until the disk has the bytes, so that a power failure loses nothing that was
    committed. Without it a killed process loses nothing, and a file that a power failure has torn is found by its
    checksum. Only local files know the difference.
    """

    root: str
    cache: str | None = None
    sync: bool = False

    @classmethod
    def at(cls, uri_or_path: str | os.PathLike[str], *, cache: str | None = None, sync: bool = False) -> Files:
        """The files under a path or URI. Nothing is opened or created yet.

        ``cache`` is the directory in which hosts keep what they fetched from a remote root; by default one in the
        system's directory for temporary files.
        """
        text = os.fspath(uri_or_path)
        if text.startswith("file:"):
            text = pafs.FileSystem.from_uri(text)[1]
        if "://" not in text:
            text = os.path.abspath(text)
        return cls(text.rstrip("/") or "/", cache, sync)

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def join(self, name: str) -> str:
        """Where a file lies, for messages and local calls. ``StateError`` for a name that leaves the root."""
        if not name or name.startswith("/") or ".." in name.split("/"):
            raise StateError.outside(name)
        return f"{self.root}/{name}"

    def read_bytes(self, name: str) -> bytes:
        """The whole content. ``StateError`` when the file is not there."""
        path = self.join(name)
        with _faults(path):
            if self.is_local:
                with open(path, "rb", buffering=0) as file:
                    return file.read()
            filesystem, base = _remote(self.root)
            with filesystem.open_input_stream(f"{base}/{name}") as stream:
                return bytes(stream.read())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write or replace a file, all of it or nothing."""
        with self.create(name) as writer:
            writer.write(content)
            writer.finish()

    def write_new(self, name: str, content: bytes) -> bool:
        """Write a file unless there is one of that name already; False if there is.

        On a local disk two writers at the same moment cannot both succeed. Elsewhere they can, and the later one wins.
        """
        if not self.is_local:
            if self.exists(name):
                return False
            self.write_bytes(name, content)
            return True
        with self.create(name) as writer:
            writer.write(content)
            return writer.finish(replace=False)

    def create(self, name: str) -> FileWriter:
        """Begin a file that appears under its name when ``finish`` is called."""
        return FileWriter(self, name)

    def open_output(self, name: str) -> FileWriter:
        """The same, for libraries that write to a Python file: the file appears when it is closed."""
        return FileWriter(self, name)

    def exists(self, name: str) -> bool:
        path = self.join(name)
        with _faults(path):
            if self.is_local:
                return os.path.exists(path)
            filesystem, base = _remote(self.root)
            return bool(filesystem.get_file_info(f"{base}/{name}").type != pafs.FileType.NotFound)

    def size(self, name: str) -> int:
        """The size in bytes. ``StateError`` when the file is not there."""
        path = self.join(name)
        with _faults(path):
            if self.is_local:
                return os.stat(path).st_size
            filesystem, base = _remote(self.root)
            info = filesystem.get_file_info(f"{base}/{name}")
            if info.type != pafs.FileType.File:
                raise FileNotFoundError(path)
            return int(info.size)

    def list(self, directory: str) -> Names:
        """The names in a directory (not below it), ascending, without temporary ones; none if there is no such one."""
        return [name for name in self._names(directory) if not name.startswith(".")]

    def stale(self, directory: str) -> Names:
        """The temporary names in a directory: files being written, or left behind by a process that died."""
        return [name for name in self._names(directory) if name.startswith(".") and name.endswith(".tmp")]

    def _names(self, directory: str) -> Names:
        path = self.join(directory)
        with _faults(path):
            if self.is_local:
                try:
                    return sorted(os.listdir(path))
                except FileNotFoundError:
                    return []
            filesystem, base = _remote(self.root)
            found = filesystem.get_file_info(pafs.FileSelector(f"{base}/{directory}", allow_not_found=True))
            return sorted(str(info.base_name) for info in found)

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is as good as deleted."""
        path = self.join(name)
        with contextlib.suppress(FileNotFoundError), _faults(path, missing=False):
            if self.is_local:
                os.unlink(path)
            else:
                filesystem, base = _remote(self.root)
                filesystem.delete_file(f"{base}/{name}")

    def local_path(self, name: str) -> Path:
        """A local file with this content, to be mapped into memory: the file itself, or the host's copy of it.

        A remote file is fetched once per host. The cache directory keeps what was used last, up to ``CACHE_BYTES``; a
        copy that is mapped stays readable when it is dropped from there.
        """
        path = self.join(name)
        if self.is_local:
            if not os.path.exists(path):
                raise StateError.missing(path)
            return Path(path)
        copy = self._copy_of(name)
        with _faults(path):
            try:
                os.utime(copy)
                return copy
            except FileNotFoundError:
                pass
            copy.parent.mkdir(parents=True, exist_ok=True)
            with _lock(copy.parent / ".lock"):
                if not copy.exists():
                    self._fetch(name, copy)
                    _trim(copy.parent.parent, keep=copy)
        return copy

    def forget_copy(self, name: str) -> None:
        """Drop the host's copy of a remote file, so that it is fetched anew; nothing for a local root."""
        if not self.is_local:
            self._copy_of(name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """Hold a lock among the processes of this host. A remote root has none: there, this does nothing."""
        path = self.join(name)
        if not self.is_local:
            yield
            return
        with _faults(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
        with _lock(Path(path)):
            yield

    def _copy_of(self, name: str) -> Path:
        cache = self.cache or os.path.join(tempfile.gettempdir(), f"headgate-{os.getuid()}")
        return Path(cache) / xxhash.xxh3_64_hexdigest(self.root.encode()) / name.replace("/", "+")

    def _fetch(self, name: str, copy: Path) -> None:
        filesystem, base = _remote(self.root)
        temporary = copy.with_name(f".{copy.name}.{secrets.token_hex(4)}.tmp")
        try:
            with filesystem.open_input_stream(f"{base}/{name}") as source, open(temporary, "wb") as target:
                shutil.copyfileobj(source, target, COPY_BYTES)
            os.rename(temporary, copy)
        finally:
            temporary.unlink(missing_ok=True)


class FileWriter:
    """One file being written. ``finish`` makes it appear; ``abort``, or leaving the block without finish, drops it."""

    __slots__ = ("_file", "_files", "_path", "_position", "_temporary", "name")

    def __init__(self, files: Files, name: str) -> None:
        self._files = files
        self._path = files.join(name)
        self._file: IO[bytes] | Any | None = None
        self._position = 0
        self.name = name
        directory, _, last = name.rpartition("/")
        hidden = f".{last}.{secrets.token_hex(4)}.tmp"
        self._temporary = f"{directory}/{hidden}" if directory else hidden
        with _faults(self._path):
            if files.is_local:
                path = files.join(self._temporary)
                try:
                    self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by finish or abort
                except FileNotFoundError:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    self._file = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by finish or abort
            else:
                filesystem, base = _remote(files.root)
                self._temporary = self._temporary if filesystem.type_name in RENAMES else name
                filesystem.create_dir(f"{base}/{directory}" if directory else base, recursive=True)
                self._file = filesystem.open_output_stream(f"{base}/{self._temporary}")

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()

    @property
    def closed(self) -> bool:
        return self._file is None

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Finish, if it is not finished or aborted."""
        if self._file is not None:
            self.finish()

    def write(self, content: bytes | memoryview | pa.Buffer) -> int:
        """Add bytes at the end; how many."""
        assert self._file is not None, "the file is finished"
        view = memoryview(content)
        with _faults(self._path):
            if not self._files.is_local:
                self._file.write(content)
            elif view.nbytes:
                left = view.cast("B")
                while len(left):
                    left = left[self._file.write(left) :]
        self._position += view.nbytes
        return view.nbytes

    def finish(self, *, replace: bool = True) -> bool:
        """Make the file appear under its name. With ``replace=False`` an existing one stays: then False."""
        assert self._file is not None, "the file is finished"
        with _faults(self._path):
            if not self._files.is_local:
                self._file.close()
                self._file = None
                if self._temporary != self.name:
                    self._move()
                return True
            if self._files.sync:
                os.fsync(self._file.fileno())
            self._file.close()
            temporary = self._files.join(self._temporary)
            if replace:
                os.rename(temporary, self._path)
            else:
                try:
                    os.link(temporary, self._path)
                except FileExistsError:
                    return False  # the block's end drops the temporary file
                os.unlink(temporary)
            self._file = None
            if self._files.sync:
                _sync_directory(os.path.dirname(self._path))
        return True

    def abort(self) -> None:
        """Drop what was written; nothing once finished."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            self._file.close()
        self._file = None
        with contextlib.suppress(StateError):
            self._files.delete(self._temporary)

    def _move(self) -> None:
        filesystem, base = _remote(self._files.root)
        target = f"{base}/{self.name}"
        if filesystem.get_file_info(target).type != pafs.FileType.NotFound:
            filesystem.delete_file(target)
        filesystem.move(f"{base}/{self._temporary}", target)


def unique_name(stem: str, suffix: str) -> str:
    """A file name that no other attempt has: ``stem-<8 hex>.suffix``."""
    return f"{stem}-{secrets.token_hex(4)}.{suffix}"


@lru_cache(maxsize=64)
def _remote(root: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a URI and the path of the root on it, opened once per process."""
    filesystem, base = pafs.FileSystem.from_uri(root)
    return filesystem, base.rstrip("/")


@contextlib.contextmanager
def _faults(path: str, *, missing: bool = True) -> Iterator[None]:
    """Turn faults of the file system into a ``StateError`` that names the file and says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        if not missing:
            raise
        raise StateError.missing(path) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StateError.no_space(path) from error
        raise StateError.unreachable(path, error) from error


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync_directory(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _trim(cache: Path, keep: Path) -> None:
    """Delete the copies that were used longest ago until the cache holds at most ``CACHE_BYTES``; never ``keep``."""
    copies: list[tuple[float, int, Path]] = []
    for path in cache.glob("*/*"):
        with contextlib.suppress(FileNotFoundError):
            stat = path.stat()
            copies.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in copies)
    for _, size, path in sorted(copies):
        if total <= CACHE_BYTES:
            return
        if path != keep and not path.name.startswith("."):
            path.unlink(missing_ok=True)
            total -= size
