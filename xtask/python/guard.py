"""Runs one program that a model wrote, with few rights.

    python -I guard.py PROGRAM.py

Memory, processor time and file sizes are limited by the kernel; the caller limits the wall clock and takes
the network away. Starting programs, changing files and native code are refused from within: a guard against
a model's blunders, not against an attacker.
"""

import os
import resource
import sys

MEMORY_BYTES_MAX = 1 << 30
CPU_SECONDS_MAX = 10
FILE_BYTES_MAX = 1 << 20
REFUSED = ("subprocess.", "os.", "socket.", "ctypes.", "shutil.", "pty.", "signal.", "tempfile.", "urllib.")
HARMLESS = ("os.listdir", "os.scandir")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def refuse(event, args):
    if event == "open" and isinstance(args[2], int) and args[2] & WRITES:
        raise PermissionError("the program may not write files")
    if event.startswith(REFUSED) and event not in HARMLESS:
        raise PermissionError(f"the program may not use {event}")


def limit(kind, value):
    resource.setrlimit(kind, (value, value))


with open(sys.argv[1]) as file:
    program = compile(file.read(), "program.py", "exec")
limit(resource.RLIMIT_AS, MEMORY_BYTES_MAX)
limit(resource.RLIMIT_CPU, CPU_SECONDS_MAX)
limit(resource.RLIMIT_FSIZE, FILE_BYTES_MAX)
limit(resource.RLIMIT_CORE, 0)
sys.addaudithook(refuse)
exec(program, {"__name__": "program"})
