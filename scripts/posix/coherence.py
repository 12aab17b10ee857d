#!/usr/bin/env python3
"""Who sees what at once: processes through one mount, the command line, inotify (by programs.sh).

    coherence.py MOUNT PANDO
"""
import ctypes
import mmap
import os
import random
import struct
import subprocess
import sys
import time

mount, pando = sys.argv[1:3]
libc = ctypes.CDLL(None, use_errno=True)
CREATE, DELETE, MODIFY, ATTRIB, MOVED_FROM, MOVED_TO = 0x100, 0x200, 0x2, 0x4, 0x40, 0x80


def check(what, truth):
    if not truth:
        sys.exit(f"coherence: {what}")


class Other:
    """Another process, which runs Python in order and answers each line."""

    def __init__(self):
        code = "import os,sys\nfor l in sys.stdin:\n print(repr(eval(l)), flush=True)"
        self.process = subprocess.Popen([sys.executable, "-c", code], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=os.getcwd())

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return eval(self.process.stdout.readline())


def run(*arguments):
    done = subprocess.run([pando, *arguments], capture_output=True, text=True, timeout=600)
    check(f"pando {' '.join(arguments)}: {done.stderr}", done.returncode == 0)
    return done.stdout


def processes():
    other = Other()
    fd = os.open("shared", os.O_RDWR | os.O_CREAT)
    other.ask("globals().update(f=os.open('shared', os.O_RDWR)) or 0")
    for n in range(300):
        text = f"{n:08}".encode()
        os.pwrite(fd, text, n * 3000)
        check(f"write {n} is seen", other.ask(f"os.pread(f, 8, {n * 3000})") == text)
        other.ask(f"os.pwrite(f, b'back{n:04}', {n * 3000 + 100})")
        check(f"write {n} of the other is seen", os.pread(fd, 8, n * 3000 + 100) == f"back{n:04}".encode())
        check("and the length", os.fstat(fd).st_size == other.ask("os.fstat(f).st_size"))
    view = mmap.mmap(fd, 4096)
    other.ask("os.pwrite(f, b'mapped', 50)")
    check("a write is seen in a map", view[50:56] == b"mapped")
    view[60:64] = b"MAPS"
    check("a map is seen by a read", other.ask("os.pread(f, 4, 60)") == b"MAPS")
    for n in range(200):
        name = f"name{n}"
        check("no such name", not other.ask(f"os.path.exists('{name}')"))
        open(name, "w").close()
        check("a name is seen", other.ask(f"os.path.exists('{name}')"))
        other.ask(f"os.rename('{name}', '{name}-moved')")
        check("a rename is seen", not os.path.exists(name) and os.path.exists(name + "-moved"))
        os.unlink(name + "-moved")
        check("a removal is seen", not other.ask(f"os.path.exists('{name}-moved')"))
    a, b = (os.open("append", os.O_WRONLY | os.O_CREAT | os.O_APPEND) for _ in range(2))
    for n in range(100):
        os.write(a, b"aaaa")
        os.write(b, b"bbbb")
    check("appends do not lose", os.stat("append").st_size == 800)


def command_line():
    os.makedirs("tree/below")
    open("tree/below/file", "w").write("one")
    path = os.path.join(mount, "coherence/tree")
    run("snapshot", "create", path, "s1")
    check("a snapshot is there", os.listdir("tree/.snapshots") == ["s1"])
    open("tree/below/file", "w").write("two!")
    check("it shows what was", open("tree/.snapshots/s1/below/file").read() == "one")
    os.stat("tree/below/file")
    run("rollback", path, "s1")
    check("a roll-back is seen at once", open("tree/below/file").read() == "one")
    check("no clone yet", not os.path.exists("fork"))
    run("clone", path, os.path.join(mount, "coherence/fork"))
    check("a clone is there at once", open("fork/below/file").read() == "one")
    run("rmr", os.path.join(mount, "coherence/fork"))
    check("and gone at once", not os.path.exists("fork") and "fork" not in os.listdir("."))
    open("outside", "w").write("imported")
    run("import", "outside", os.path.join(mount, "coherence/taken"))
    check("an import is there", open("taken").read() == "imported")


def end_of_file(is_cut):
    """Reads at the end of a file that another process extends, and cuts if `is_cut`: the bytes that were
    written; beside a cut also zeros in the place of bytes that are cut in that moment."""
    pattern = bytes(1 + n for n in range(251)) * (2000 if is_cut else 200_000)
    path = f"end{int(is_cut)}"
    open(path, "wb").close()
    until = time.monotonic() + 1.5
    child = os.fork()
    if child == 0:
        try:
            fd, at = os.open(path, os.O_WRONLY), 0
            lengths = random.Random(1)
            # At least once: on a busy machine the time may be over before.
            while at == 0 or time.monotonic() < until:
                length = lengths.choice([1, 7, 100, 500, 4096, 5000])
                if at + length > len(pattern):
                    if not is_cut:
                        break
                    os.ftruncate(fd, 0)
                    at = 0
                os.pwrite(fd, pattern[at:at + length], at)
                at += length
            os._exit(0)
        finally:
            os._exit(1)
    fd, lengths, reads = os.open(path, os.O_RDONLY), random.Random(2), 0
    while reads == 0 or time.monotonic() < until:
        at = max(0, os.fstat(fd).st_size - lengths.choice([0, 1, 100, 4096, 9000]))
        found = os.pread(fd, lengths.choice([10, 4096, 8192, 100_000]), at)
        reads += 1
        for n, byte in enumerate(found) if found != pattern[at:at + len(found)] else ():
            check(f"byte {at + n} is {byte}", byte == pattern[at + n] or is_cut and byte == 0)
    check("the writer ended", os.waitpid(child, 0)[1] == 0 and reads > 0)
    with open(path, "rb") as whole:
        content = whole.read()
    check("what is there at the end", len(content) > 0 and content == pattern[:len(content)])


def watched():
    os.mkdir("watched")
    events = libc.inotify_init1(os.O_NONBLOCK)
    check("inotify", events >= 0)
    mask = CREATE | DELETE | MODIFY | ATTRIB | MOVED_FROM | MOVED_TO
    check("a watch", libc.inotify_add_watch(events, b"watched", mask) >= 0)
    other = Other()

    def seen():
        try:
            data = os.read(events, 65536)
        except BlockingIOError:
            return []
        found = []
        while data:
            _, kind, _, length = struct.unpack_from("iIII", data)
            found.append((kind & mask, data[16:16 + length].rstrip(b"\0").decode()))
            data = data[16 + length:]
        return found

    # (For a process that watches the file itself, a change of links is one of attributes.)
    for change, expected in [
        ("open('watched/a', 'w').write('x')", [(CREATE, "a"), (MODIFY, "a")]),
        ("os.rename('watched/a', 'watched/b')", [(MOVED_FROM, "a"), (MOVED_TO, "b")]),
        ("os.chmod('watched/b', 0o600)", [(ATTRIB, "b")]),
        ("os.utime('watched/b')", [(ATTRIB, "b")]),
        ("os.setxattr('watched/b', 'user.a', b'1')", [(ATTRIB, "b")]),
        ("os.removexattr('watched/b', 'user.a')", [(ATTRIB, "b")]),
        ("os.truncate('watched/b', 0)", [(MODIFY, "b")]),
        ("os.link('watched/b', 'watched/c')", [(CREATE, "c")]),
        ("os.unlink('watched/b')", [(DELETE, "b")]),
        ("os.mkdir('watched/d')", [(CREATE, "d")]),
        ("os.chmod('watched', 0o700)", [(ATTRIB, "")]),
        ("os.rename('watched/d', 'gone')", [(MOVED_FROM, "d")]),
        ("os.rename('gone', 'watched/d')", [(MOVED_TO, "d")]),
    ]:
        other.ask(change)
        reported = seen()
        check(f"events of {change}: {reported}", reported == expected)
    # Changes by commands are visible at once, and no event reports them: the kernel has none for
    # what a FUSE file system changes by itself (docs/limits.md).
    path = os.path.join(mount, "coherence/watched")
    run("snapshot", "create", path, "s")
    run("import", "outside", os.path.join(path, "imported"))
    run("clone", path, os.path.join(path, "clone"))
    check("commands are seen", sorted(os.listdir("watched")) == ["c", "clone", "d", "imported"])
    run("rmr", os.path.join(path, "clone"))
    run("rollback", path, "s")
    check("and a roll-back", sorted(os.listdir("watched")) == ["c", "d"])
    events = [(kind, name) for kind, name in seen() if name in ("clone", "imported")]
    check(f"an event names a command, against docs/limits.md: {events}", events == [])


os.mkdir(os.path.join(mount, "coherence"))
os.chdir(os.path.join(mount, "coherence"))
processes()
end_of_file(False)
end_of_file(True)
command_line()
watched()
print("coherence: processes, command line and inotify agree")
