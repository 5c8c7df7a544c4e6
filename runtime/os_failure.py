"""What a user reads when the operating system refuses: what, where, why and what to do, in one line."""

from __future__ import annotations

import errno
import os

_ADVICE = {
    errno.ENOENT: "choose another path",
    errno.EACCES: "let this user write there, or choose another path",
    errno.EPERM: "let this user write there, or choose another path",
    errno.EROFS: "mount it writable, or choose another path",
    errno.ENOTDIR: "a part of the path is a file; choose another path, or move that file away",
    errno.EEXIST: "a file is where a folder is wanted; choose another path, or move that file away",
    errno.EISDIR: "a folder is where a file is wanted; name a file",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ENOSPC: "free some space, or choose a path on another disk",
    errno.EDQUOT: "free some space, or choose a path on another disk",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the machine has too many open files; close some",
    errno.ENOMEM: "free some memory",
    errno.EIO: "the disk failed; replace it, or choose a path on another disk",
}


def os_failure(error: OSError) -> str:
    """Return the one line for *error*; one that was raised with a text of its own keeps it."""
    if isinstance(error.filename, (str, bytes)) and error.strerror:
        return f"{os.fsdecode(error.filename)} cannot be used: {os_reason(error)}"
    return os_reason(error)


def os_reason(error: OSError) -> str:
    """Return why and what to do, for a line that says what and where already."""
    if error.errno is None or not error.strerror:
        return str(error)
    advice = _ADVICE.get(error.errno)
    return f"{error.strerror}; {advice}" if advice else error.strerror
