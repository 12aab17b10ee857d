#!/usr/bin/env python3
"""That copies share extents: what the volume takes on its disk (run by programs.sh).

    extents.py DIRECTORY PANDO      a directory of a mounted volume on which nothing else happens
"""
import hashlib
import json
import os
import subprocess
import sys

SIZE, COPIES, SLACK = 64 << 20, 4, 16 << 20


def check(what, truth):
    if not truth:
        sys.exit(f"extents: {what}")


def run(*arguments):
    done = subprocess.run([pando, *arguments], capture_output=True, text=True)
    check(f"pando {' '.join(arguments)}: {done.stderr}", done.returncode == 0)
    return done.stdout


def space():
    """Bytes that the volume takes on its disk, but for the log."""
    run("sync", ".")
    status = json.loads(run("status", "--json", "."))
    return status["disk_bytes"] - status["log_bytes"]


def digest(path, start=0):
    with open(path, "rb") as file:
        file.seek(start)
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        sum = hashlib.sha256()
        while chunk := file.read(1 << 20):
            sum.update(chunk)
        return sum.hexdigest()


def copy(path, offset):
    source, target = os.open("source", os.O_RDONLY), os.open(path, os.O_RDWR | os.O_CREAT)
    done = 0
    while done < SIZE:
        copied = os.copy_file_range(source, target, SIZE - done, done, offset + done)
        check("copy_file_range continues", copied > 0)
        done += copied
    os.close(source)
    os.close(target)


pando = sys.argv[2]
os.mkdir(os.path.join(sys.argv[1], "extents"))
os.chdir(os.path.join(sys.argv[1], "extents"))
empty = space()
with open("source", "wb") as file:
    for _ in range(SIZE >> 20):
        file.write(os.urandom(1 << 20))
before, wanted = space(), digest("source")
# Otherwise the reported extents differ from what is written.
check(f"{SIZE} bytes are seen as {before - empty}", before - empty > SIZE - SLACK)
offsets = [0, 1 << 20, 12345, 0]
for n, offset in enumerate(offsets[:-1]):
    copy(f"copy-{n}", offset)
subprocess.run(["cp", "source", f"copy-{COPIES - 1}"], check=True)
grown = space() - before
check(f"{COPIES} copies of {SIZE} bytes take {grown}", grown < SLACK)
for n, offset in enumerate(offsets):
    check(f"copy {n} reads as it should", digest(f"copy-{n}", offset) == wanted)
    check(f"the length of copy {n}", os.stat(f"copy-{n}").st_size == SIZE + offset)
    check(f"the zeros before copy {n}", open(f"copy-{n}", "rb").read(offset) == bytes(offset))
# From here on each changes independently.
with open("copy-0", "r+b") as file:
    file.seek(20 << 20)
    file.write(b"changed")
check("the source stays", digest("source") == wanted)
check("a copy stays", digest("copy-3") == wanted)
check("a copy changes", digest("copy-0") != wanted)
os.unlink("source")
os.unlink("copy-0")
run("sync", ".")
for n in (1, 2, 3):
    check(f"copy {n} outlives its source", digest(f"copy-{n}", offsets[n]) == wanted)
    os.unlink(f"copy-{n}")
print(f"extents: {COPIES} copies of {SIZE >> 20} MiB take {grown >> 10} KiB")
