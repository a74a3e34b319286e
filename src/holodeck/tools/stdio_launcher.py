"""Runs a command in place of this process, after asking the kernel to end it when its parent ends.

    python -I -S stdio_launcher.py <pid of the parent> <path of the command> [arguments …]

HoloDeck cannot end its children when it is killed with SIGKILL, so the kernel does. `preexec_fn` could do this too, but
runs Python between fork and exec, which can deadlock in a process with threads. Standard library only, and little of
it: every tool server waits for this before its own start. Linux only; elsewhere it just runs the command. To the kernel,
the parent is the thread that started this process: the event loop's.
"""

import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h
CANNOT_RUN = 127  # the exit code of shells for it


def die_with(parent: int) -> None:
    import ctypes  # noqa: PLC0415  slow to import, and only Linux needs it

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before prctl took effect
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parent, *argv = sys.argv[1:]
    if sys.platform == "linux":
        die_with(int(parent))
    try:
        os.execv(argv[0], argv)  # noqa: S606  no shell is the point; the command comes from the agent file
    except OSError as error:
        sys.stderr.write(f"{argv[0]}: {error.strerror}\n")
        sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main()
