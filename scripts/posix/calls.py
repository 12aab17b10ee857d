#!/usr/bin/env python3
"""System calls that no program above makes, each with what it must answer (run by programs.sh).

    calls.py DIRECTORY      a directory of a mounted volume

As an ordinary user, what takes the rights of several is left out.
"""
import ctypes
import errno
import fcntl
import mmap
import os
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
KEEP, PUNCH, COLLAPSE, ZERO = 1, 2, 8, 16
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38
done = 0
# Whether other users can be tested: `as_user` needs root.
ROOT = os.getuid() == 0


def check(what, truth):
    global done
    done += 1
    if not truth:
        sys.exit(f"calls: {what}")


def fails(number, what, act):
    try:
        act()
    except OSError as error:
        check(f"{what}: {errno.errorcode[error.errno]} instead of {errno.errorcode[number]}", error.errno == number)
        return
    check(f"{what}: it works, and should be {errno.errorcode[number]}", False)


def call(function, *arguments):
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def rename2(old, new, flags):
    call(libc.renameat2, -100, old.encode(), -100, new.encode(), flags)


def fallocate(fd, mode, offset, length):
    call(libc.fallocate, fd, mode, offset, length)


def name(fd, path):
    """Gives an open file a name."""
    call(libc.linkat, -100, f"/proc/self/fd/{fd}".encode(), -100, path.encode(), 0x400)


def create(path, content=b"", mode=0o644):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    os.write(fd, content)
    return fd


def as_user(uid, gid, groups, act):
    """Runs in a child with other rights; returns whether it went well, or the number of its error.

    With the user 0: in a child, with the rights that there are."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            if ROOT:
                os.setgroups(groups)
                os.setgid(gid)
                os.setuid(uid)
            elif uid != 0:
                os._exit(254)
            act()
            code = 0
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def holes():
    fd = create("holes", b"a" * 100000)
    os.pwrite(fd, b"b" * 100000, 1000000)
    check("SEEK_DATA in data", os.lseek(fd, 10, os.SEEK_DATA) == 10)
    check("SEEK_HOLE", 100000 <= os.lseek(fd, 0, os.SEEK_HOLE) <= 102400)
    check("SEEK_DATA over a hole", 995000 <= os.lseek(fd, 500000, os.SEEK_DATA) <= 1000000)
    check("SEEK_HOLE at the end", os.lseek(fd, 1000000, os.SEEK_HOLE) == 1100000)
    fails(errno.ENXIO, "SEEK_DATA past the end", lambda: os.lseek(fd, 1100000, os.SEEK_DATA))
    before = os.fstat(fd).st_blocks
    fallocate(fd, PUNCH | KEEP, 4096, 65536)
    check("a hole is zeros", os.pread(fd, 65536, 4096) == bytes(65536))
    check("beside a hole", os.pread(fd, 4096, 0) == b"a" * 4096)
    check("a hole takes no space", os.fstat(fd).st_blocks <= before - 128)
    fallocate(fd, ZERO | KEEP, 1090000, 100000)
    check("zeros within the file", os.fstat(fd).st_size == 1100000)
    fallocate(fd, ZERO, 1090000, 100000)
    check("zeros grow the file", os.fstat(fd).st_size == 1190000)
    fallocate(fd, KEEP, 0, 5000000)
    check("allocation keeps the size", os.fstat(fd).st_size == 1190000)
    fallocate(fd, 0, 0, 5000000)
    check("allocation grows the file", os.fstat(fd).st_size == 5000000)
    fails(errno.EOPNOTSUPP, "collapse", lambda: fallocate(fd, COLLAPSE, 0, 4096))
    fails(errno.ENOSPC, "more than there is", lambda: fallocate(fd, 0, 0, 1 << 55))
    tiny = create("tiny", b"0123456789")
    fallocate(tiny, PUNCH | KEEP, 2, 3)
    check("a hole in a small file", os.pread(tiny, 20, 0) == b"01\0\0\x0056789")
    os.close(fd)


def copies():
    content = os.urandom(3_000_000)
    source = create("source", content)
    target = create("target", b"x" * 100)
    position = 0
    while position < len(content):
        copied = os.copy_file_range(source, target, len(content) - position, position, position)
        check("copy_file_range moves on", copied > 0)
        position += copied
    check("the copy", os.pread(target, len(content), 0) == content)
    os.pwrite(source, b"changed", 1000)
    os.ftruncate(source, 2000)
    check("the copy stays", os.pread(target, len(content), 0) == content)
    check("past the end", os.copy_file_range(source, target, 10, 5000, 0) == 0)
    fails(errno.EINVAL, "onto itself", lambda: os.copy_file_range(target, target, 1000, 0, 500))
    os.mkdir(".snapshots/before")
    old = os.open(".snapshots/before/target", os.O_RDONLY)
    os.ftruncate(target, 0)
    copied = os.copy_file_range(old, target, len(content), 0, 0)
    check("out of a snapshot", os.pread(target, copied, 0) == content[:copied] and copied > 0)
    os.close(old)
    os.rmdir(".snapshots/before")
    check("after the snapshot", os.pread(target, copied, 0) == content[:copied])


def unnamed():
    fd = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"n" * 10000)
    check("a file without a name", os.fstat(fd).st_nlink == 0 and os.fstat(fd).st_size == 10000)
    names = set(os.listdir("."))
    name(fd, "named")
    check("it gets one", set(os.listdir(".")) - names == {"named"})
    check("with its contents", open("named", "rb").read() == b"n" * 10000)
    check("and attributes", os.stat("named").st_nlink == 1 and os.stat("named").st_mode & 0o777 == 0o640)
    os.close(fd)
    os.link("named", "named-twice")
    os.unlink("named")
    check("its second name", open("named-twice", "rb").read() == b"n" * 10000)
    small = os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
    os.write(small, b"few")
    name(small, "few")
    check("a small one", open("few", "rb").read() == b"few")
    kept = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o600)
    fails(errno.ENOENT, "O_EXCL has no name ever",
          lambda: name(kept, "never"))
    gone = create("gone", b"1")
    os.unlink("gone")
    fails(errno.ENOENT, "a removed file gets no name",
          lambda: name(gone, "again"))


def renames():
    create("one", b"1"), create("two", b"2")
    fails(errno.EEXIST, "RENAME_NOREPLACE", lambda: rename2("one", "two", NOREPLACE))
    rename2("one", "three", NOREPLACE)
    rename2("three", "two", EXCHANGE)
    check("RENAME_EXCHANGE", open("two").read() == "1" and open("three").read() == "2")
    os.makedirs("d/e")
    rename2("d/e", "two", EXCHANGE)
    check("a file for a directory", os.path.isdir("two") and os.path.isfile("d/e"))
    check("links of both parents", os.stat("d").st_nlink == 2)
    fails(errno.ENOENT, "exchange with nothing", lambda: rename2("two", "none", EXCHANGE))
    rename2("three", "four", WHITEOUT)
    left = os.lstat("three")
    check("RENAME_WHITEOUT", open("four").read() == "2" and stat.S_ISCHR(left.st_mode) and left.st_rdev == 0)
    fails(errno.EINVAL, "a whiteout of an exchange", lambda: rename2("four", "three", WHITEOUT | EXCHANGE))
    fails(errno.EINVAL, "below itself", lambda: os.rename("d", "d/x"))


def directories():
    os.mkdir("nlink")
    for count in range(5):
        check("links of a directory", os.stat("nlink").st_nlink == 2 + count)
        os.mkdir(f"nlink/{count}")
    create("nlink/file")
    os.rename("nlink/0", "moved")
    check("links after a move", os.stat("nlink").st_nlink == 6)
    fails(errno.ENOTEMPTY, "rmdir", lambda: os.rmdir("nlink"))
    fails(errno.EPERM, "link of a directory", lambda: os.link("nlink", "nlink2"))
    fails(errno.EISDIR, "unlink of a directory", lambda: os.unlink("moved"))
    fails(errno.ENOTDIR, "below a file", lambda: os.stat("nlink/file/x"))
    fails(errno.ENAMETOOLONG, "a long name", lambda: os.mkdir("n" * 256))
    os.mkdir("n" * 255)
    fails(errno.ENAMETOOLONG, "a long path", lambda: os.stat("x/" * 2100))
    fails(errno.ENAMETOOLONG, "a long target", lambda: os.symlink("t" * 4096, "long"))
    os.symlink("t" * 4095, "long")
    check("the longest target", len(os.readlink("long")) == 4095)
    os.symlink("loop", "loop")
    fails(errno.ELOOP, "a loop", lambda: os.stat("loop"))


def big():
    """Limits of sizes: of the file system, and of the caller."""
    fd = create("big")
    top = (1 << 63) - 1
    os.ftruncate(fd, top)
    more = os.open("big", os.O_WRONLY | os.O_APPEND)
    fails(errno.EFBIG, "more than the greatest file", lambda: os.write(more, b"x"))
    fails(errno.EFBIG, "allocating beyond it", lambda: fallocate(fd, 0, top - 10, 100))
    fails(errno.EFBIG, "zeros beyond it", lambda: fallocate(fd, ZERO, top - 10, 100))
    check("the greatest size stays", os.fstat(fd).st_size == top)
    os.close(more)
    os.ftruncate(fd, 0)
    def beyond():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        check("up to it", os.pwrite(fd, b"x" * 200, 99900) == 100)
        os.pwrite(fd, b"x", 100000)
    check("larger than the caller may make it", as_user(0, 0, [], beyond) == errno.EFBIG)
    def longer():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100000, 100000))
        os.ftruncate(fd, 100001)
    check("longer than the caller may make it", as_user(0, 0, [], longer) == errno.EFBIG)
    check("neither was done", os.fstat(fd).st_size == 100000)


def times():
    before = int(time.time())
    create("times", b"x")
    after = int(time.time())
    shown = subprocess.run(["stat", "-c", "%W", "times"], capture_output=True, text=True).stdout
    check(f"statx has the birth ({shown.strip()})", before <= int(shown) <= after)
    for moment in [-1_500_000_000, 0, 1_234_567_890_123_456_789, -1, 4_102_444_800_000_000_000]:
        os.utime("times", ns=(moment, moment + 1))
        s = os.stat("times")
        check(f"a time of {moment}", (s.st_atime_ns, s.st_mtime_ns) == (moment, moment + 1))
    check("birth stays", int(subprocess.run(["stat", "-c", "%W", "times"], capture_output=True).stdout) == int(shown))
    old = time.time_ns() - 3600 * 10**9
    os.utime("times", ns=(old - 10**9, old))
    open("times").read()
    check("relatime: first read after a change", os.stat("times").st_atime_ns > old)
    os.utime("times", ns=(old + 1, old))
    ctime = os.stat("times").st_ctime_ns
    check("a change of times is a change", ctime > old)
    omit = (1 << 30) - 2
    class Spec(ctypes.Structure):
        _fields_ = [("s", ctypes.c_long), ("n", ctypes.c_long)]
    both = (Spec * 2)(Spec(0, omit), Spec(77, 5))
    call(libc.utimensat, -100, b"times", both, 0)
    s = os.stat("times")
    check("UTIME_OMIT", s.st_atime_ns == old + 1 and s.st_mtime_ns == 77 * 10**9 + 5)
    if not ROOT:
        return
    os.chmod("times", 0o666)
    check("a stranger sets no times", as_user(1000, 1000, [], lambda: os.utime("times", ns=(1, 1))) == errno.EPERM)
    check("a writer sets the present", as_user(1000, 1000, [], lambda: os.utime("times")) == 0)


def set_id_programs():
    """A program that another user changed does not run with its owner's rights: what counts is the
    mode that the kernel has, and not the one that stat asks for."""
    page = mmap.mmap(-1, 4096)

    def program(path):
        shutil.copyfile(shutil.which("id"), path)
        os.chown(path, 1000, 2500)
        os.chmod(path, 0o6777)

    def runs_as():
        id = lambda what: int(subprocess.run(["./setid-program", what], user=3000, group=3000, extra_groups=[],
                                             capture_output=True, check=True).stdout)
        return id("-u"), id("-g")

    def change(act, flags=0):
        fd = os.open("setid-program", os.O_RDWR | flags)
        act(fd)
        os.close(fd)

    def direct(fd):
        os.readv(fd, [page])
        os.pwrite(fd, page, 0)

    program("setid-twin")
    twin = os.open("setid-twin", os.O_RDONLY)
    size = os.fstat(twin).st_size
    for what, act, flags in [
        ("a write", lambda fd: os.pwrite(fd, os.pread(twin, 100, 0), 0), 0),
        ("a direct write", direct, os.O_DIRECT),
        ("an append", lambda fd: os.write(fd, b"x"), os.O_APPEND),
        ("a direct write behind the end", lambda fd: os.pwrite(fd, page, 1 << 20), os.O_DIRECT),
        ("fallocate", lambda fd: fallocate(fd, 0, 0, size + 10), 0),
        ("fallocate of the same length", lambda fd: fallocate(fd, KEEP, 0, 4096), 0),
        ("a hole", lambda fd: fallocate(fd, PUNCH | KEEP, size, 4096), 0),
        ("zeros", lambda fd: fallocate(fd, ZERO, size, 4096), 0),
        ("a copy", lambda fd: os.copy_file_range(twin, fd, 100, 0, 0), 0),
        ("a copy of all", lambda fd: os.copy_file_range(twin, fd, size, 0, 0), 0),
        ("a truncation", lambda fd: os.ftruncate(fd, size + 1), 0),
    ]:
        program("setid-program")
        check(f"a program with set-id bits runs with them: {runs_as()}", runs_as() == (1000, 2500))
        check(f"{what} by another", as_user(3000, 3000, [], lambda: change(act, flags)) == 0)
        check(f"after {what} by another it does not: {runs_as()}", runs_as() == (3000, 3000))
    # An access list that its owner, who is not in its group, sets ends the set-group-id bit.
    program("setid-program")
    check("and once more", runs_as() == (1000, 2500))
    entries = [(1, 7, 2**32 - 1), (2, 7, 3000), (4, 7, 2**32 - 1), (16, 7, 2**32 - 1), (32, 7, 2**32 - 1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)
    set_list = lambda: os.setxattr("setid-program", "system.posix_acl_access", acl)
    check("a list", as_user(1000, 1000, [], set_list) == 0)
    check(f"after it the group is the caller's: {runs_as()}", runs_as() == (1000, 3000))
    os.close(twin)


def rights():
    fd = create("setid", b"x")
    def bits():
        return os.stat("setid").st_mode & 0o7777
    os.chown("setid", 1000, 1000)
    os.chmod("setid", 0o6777)
    os.chown("setid", 1000, 2000)
    check("chown by root takes set-id bits", bits() == 0o777)
    os.chmod("setid", 0o6777)
    check("a write by another", as_user(3000, 3000, [], lambda: open("setid", "r+").write("y")) == 0)
    check("takes set-id bits", bits() == 0o777)
    os.chmod("setid", 0o6777)
    check("a truncation too", as_user(3000, 3000, [], lambda: os.truncate("setid", 0)) == 0 and bits() == 0o777)
    os.chmod("setid", 0o6777)
    os.write(fd, b"root")
    check("root's write does not", bits() == 0o6777)
    os.close(fd)
    os.chmod("setid", 0o644)
    check("chgrp to a group of one's own", as_user(1000, 1000, [2500], lambda: os.chown("setid", -1, 2500)) == 0)
    check("chgrp to another", as_user(1000, 1000, [], lambda: os.chown("setid", -1, 99)) == errno.EPERM)
    check("set-gid by a member", as_user(1000, 1000, [2500], lambda: os.chmod("setid", 0o2755)) == 0 and bits() == 0o2755)
    check("set-gid by a stranger", as_user(1000, 1000, [], lambda: os.chmod("setid", 0o2755)) == 0 and bits() == 0o755)
    set_id_programs()
    os.mkdir("shared")
    os.chown("shared", 0, 2500)
    os.chmod("shared", 0o2777)
    def make():
        os.umask(0)
        create("shared/f", mode=0o2755)
    check("made by a member of the group", as_user(1000, 1000, [2500], make) == 0)
    s = os.stat("shared/f")
    check("in the directory's group, with the bit", s.st_gid == 2500 and s.st_mode & 0o7777 == 0o2755)
    os.mkdir("sticky")
    os.chmod("sticky", 0o1777)
    create("sticky/f")
    fails_as = as_user(1000, 1000, [], lambda: os.unlink("sticky/f"))
    check("a sticky directory", fails_as in (errno.EPERM, errno.EACCES))


def attributes():
    create("x")
    os.chown("x", 1000, 1000)
    def user(act):
        return as_user(1000, 1000, [], act)
    check("user.", user(lambda: os.setxattr("x", "user.a", b"1")) == 0)
    check("trusted. is root's", user(lambda: os.setxattr("x", "trusted.a", b"1")) == errno.EPERM)
    os.setxattr("x", "trusted.a", b"2")
    os.setxattr("x", "security.pando", b"3")
    check("root sees all", {"user.a", "trusted.a", "security.pando"} <= set(os.listxattr("x")))
    def hidden():
        if any(name.startswith("trusted.") for name in os.listxattr("x")):
            raise OSError(errno.EIO, "")
    check("others do not see trusted.", user(hidden) == 0)
    fails(errno.EEXIST, "XATTR_CREATE", lambda: os.setxattr("x", "user.a", b"", os.XATTR_CREATE))
    fails(errno.ENODATA, "XATTR_REPLACE", lambda: os.setxattr("x", "user.b", b"", os.XATTR_REPLACE))
    os.setxattr("x", "user.large", b"v" * 65536)
    check("the largest value", os.getxattr("x", "user.large") == b"v" * 65536)
    os.removexattr("x", "user.large")
    fails(errno.ENODATA, "removed", lambda: os.getxattr("x", "user.large"))
    os.symlink("x", "l")
    fails(errno.EPERM, "user. of a link", lambda: os.setxattr("l", "user.a", b"", follow_symlinks=False))


def refusals():
    """What an ordinary user may not."""
    mine = create("mine", b"x")
    fails(errno.EPERM, "chown", lambda: os.fchown(mine, 0, -1))
    fails(errno.EPERM, "chgrp", lambda: os.fchown(mine, -1, 0))
    os.fchown(mine, os.getuid(), os.getgid())
    fails(errno.EPERM, "mknod", lambda: os.mknod("null", stat.S_IFCHR | 0o600, os.makedev(1, 3)))
    fails(errno.EPERM, "trusted.", lambda: os.setxattr("mine", "trusted.a", b"1"))
    os.setxattr("mine", "user.a", b"1")
    check("an attribute of one's own", os.getxattr("mine", "user.a") == b"1")
    os.chmod("mine", 0o400)
    fails(errno.EACCES, "writing what is for reading", lambda: os.open("mine", os.O_RDWR))
    os.chmod("mine", 0)
    fails(errno.EACCES, "reading what is for nobody", lambda: os.open("mine", os.O_RDONLY))
    check("what is open stays so", os.pwrite(mine, b"y", 0) == 1)
    os.chmod("mine", 0o6755)
    os.pwrite(mine, b"z", 0)
    check("a write takes set-id bits", os.stat("mine").st_mode & 0o7777 == 0o755)
    os.mkdir("closed", 0o300)
    create("closed/f")
    fails(errno.EACCES, "listing", lambda: os.listdir("closed"))
    os.chmod("closed", 0o600)
    fails(errno.EACCES, "what is below", lambda: os.stat("closed/f"))
    check("its names", os.listdir("closed") == ["f"])
    os.chmod("closed", 0o500)
    fails(errno.EACCES, "a new name", lambda: create("closed/g"))
    fails(errno.EACCES, "a removal", lambda: os.unlink("closed/f"))
    fails(errno.EACCES, "a move", lambda: os.rename("closed/f", "f"))
    os.chmod("closed", 0o700)
    os.unlink("closed/f")


def child(act):
    ready, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        try:
            act(lambda: os.write(writer, b"r"))
        finally:
            os._exit(0)
    os.close(writer)
    os.read(ready, 1)
    os.close(ready)
    return pid


def locks():
    for lock, name in [(lambda fd, how: fcntl.flock(fd, how), "flock"),
                       (lambda fd, how: fcntl.lockf(fd, how, 10, 5), "fcntl")]:
        path = f"lock-{name}"
        fd = create(path, b"x" * 100)
        def hold(ready):
            mine = os.open(path, os.O_RDWR)
            lock(mine, fcntl.LOCK_EX)
            ready()
            time.sleep(600)
        holder = child(hold)
        try:
            lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            check(f"{name}: two hold it", False)
        except OSError as error:
            check(f"{name}: EAGAIN", error.errno in (errno.EAGAIN, errno.EACCES))
        def wait(ready):
            mine = os.open(path, os.O_RDWR)
            ready()
            lock(mine, fcntl.LOCK_EX)
            os.write(mine, b"waited")
        waiter = child(wait)
        time.sleep(0.2)
        check(f"{name}: the waiter waits", os.waitpid(waiter, os.WNOHANG) == (0, 0))
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        end = time.time() + 120
        while os.waitpid(waiter, os.WNOHANG) == (0, 0):
            check(f"{name}: the waiter gets it when the holder dies", time.time() < end)
            time.sleep(0.02)
        check(f"{name}: it got it", os.pread(fd, 6, 0) == b"waited")
        lock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        other = os.open(path, os.O_RDWR)
        if name == "fcntl":
            # Any close of the file by the process releases its locks.
            os.close(other)
        else:
            os.close(fd)
            lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(other)
        def take(_):
            pass
        check(f"{name}: closing gives it back",
              as_user(0, 0, [], lambda: lock(os.open(path, os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB)) == 0)
    fd = create("ranges", b"x" * 100)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 0)
    free = as_user(0, 0, [], lambda: fcntl.lockf(os.open("ranges", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10))
    check("ranges beside one another", free == 0)
    taken = as_user(0, 0, [], lambda: fcntl.lockf(os.open("ranges", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 9))
    check("ranges that overlap", taken in (errno.EAGAIN, errno.EACCES))


def flock_of(kind, start, length, pid=0):
    return struct.pack("hh4xqqi4x", kind, os.SEEK_SET, start, length, pid)


def open_file_locks():
    """Locks of an open file description belong to it, not to a process."""
    first = create("ofd", b"x" * 100)
    second = os.open("ofd", os.O_RDWR)

    def take(fd, kind=fcntl.F_WRLCK, start=0, length=10):
        fcntl.fcntl(fd, OFD_SETLK, flock_of(kind, start, length))

    take(first)
    fails(errno.EAGAIN, "two of one process", lambda: take(second))
    take(second, start=10)
    take(second, fcntl.F_UNLCK, 10)
    kind, _, start, length, pid = struct.unpack(
        "hh4xqqi4x", fcntl.fcntl(second, OFD_GETLK, flock_of(fcntl.F_WRLCK, 0, 100)))
    check("who has it", (kind, start, length, pid) == (fcntl.F_WRLCK, 0, 10, -1))
    taken = as_user(0, 0, [], lambda: fcntl.lockf(os.open("ofd", os.O_RDWR), fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 0))
    check("one of a process meets it", taken in (errno.EAGAIN, errno.EACCES))
    # Neither another close of the file nor that of a copy releases it.
    os.close(os.open("ofd", os.O_RDWR))
    os.close(os.dup(first))
    check("a child that closes it", as_user(0, 0, [], lambda: os.close(first)) == 0)
    fails(errno.EAGAIN, "it is held still", lambda: take(second))
    kept = os.dup(first)
    os.close(first)
    fails(errno.EAGAIN, "a copy has it", lambda: take(second))
    os.close(kept)
    take(second)
    take(second, fcntl.F_RDLCK)
    third = os.open("ofd", os.O_RDWR)
    take(third, fcntl.F_RDLCK)
    fails(errno.EAGAIN, "for writing beside a reader", lambda: take(third))


def interrupted_locks():
    """A signal ends the wait for a lock: the call fails, holds no lock, and succeeds when repeated."""
    fd = create("waited", b"x" * 100)
    libc.fcntl.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p]
    for what, hold, wait in [
        ("F_SETLKW", lambda f: fcntl.lockf(f, fcntl.LOCK_EX), lambda f: call(
            libc.fcntl, f, fcntl.F_SETLKW, flock_of(fcntl.F_WRLCK, 0, 0))),
        ("F_OFD_SETLKW", lambda f: fcntl.fcntl(f, OFD_SETLK, flock_of(fcntl.F_WRLCK, 0, 0)), lambda f: call(
            libc.fcntl, f, OFD_SETLKW, flock_of(fcntl.F_WRLCK, 0, 0))),
        ("flock", lambda f: fcntl.flock(f, fcntl.LOCK_EX), lambda f: call(libc.flock, f, fcntl.LOCK_EX)),
    ]:
        holder = os.open("waited", os.O_RDWR)
        hold(holder)

        def waiter():
            mine = os.open("waited", os.O_RDWR)
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.siginterrupt(signal.SIGALRM, True)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            start = time.monotonic()
            try:
                wait(mine)
                os._exit(250)
            except OSError as error:
                if error.errno != errno.EINTR or time.monotonic() - start < 0.1:
                    raise
            # Closed with nothing held; again, for the next holder.
            os.close(mine)
        check(f"{what} is interrupted", as_user(0, 0, [], waiter) == 0)

        def waits_on(ready):
            # An inherited descriptor would hold the lock with it.
            os.close(holder)
            mine = os.open("waited", os.O_RDWR)
            ready()
            wait(mine)
            os.pwrite(mine, what.encode().ljust(12), 0)
        waits = child(waits_on)
        time.sleep(0.1)
        check(f"{what} waits", os.waitpid(waits, os.WNOHANG) == (0, 0))
        os.close(holder)
        end = time.time() + 120
        while os.waitpid(waits, os.WNOHANG) == (0, 0):
            check(f"{what} gets it after", time.time() < end)
            time.sleep(0.02)
        check(f"{what} got it", os.pread(fd, 12, 0) == what.encode().ljust(12))
    os.close(fd)


def direct():
    """O_DIRECT beside the cache and maps, each of which sees what the others wrote."""
    page, pages = 4096, 300
    content = os.urandom(page * pages)
    area = mmap.mmap(-1, page * pages)
    area[:] = content
    fd = os.open("direct", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    cached = os.open("direct", os.O_RDWR)
    check("a large write", os.pwritev(fd, [area], 0) == len(content))
    check("is read through the cache", os.pread(cached, len(content), 0) == content)
    expected = bytearray(content)
    view = mmap.mmap(cached, len(content))
    back = mmap.mmap(-1, page * pages)
    for n in range(60):
        at = (n * 7919 % (pages - 4)) * page
        data = os.urandom(page * (1 + n % 4))
        if n % 3 == 0:
            os.pwrite(cached, data, at)
        elif n % 3 == 1:
            view[at:at + len(data)] = data
            view.flush()
        else:
            with mmap.mmap(-1, len(data)) as one:
                one[:] = data
                check("a direct write", os.pwritev(fd, [one], at) == len(data))
        expected[at:at + len(data)] = data
        check(f"read directly after {n}", os.preadv(fd, [back], 0) == len(content) and back[:] == expected)
        check(f"read through the cache after {n}", os.pread(cached, len(content), 0) == expected)
        check(f"mapped after {n}", view[at:at + len(data)] == data)
    os.ftruncate(cached, page * 2 + 100)
    with mmap.mmap(-1, page * 4) as one:
        check("up to the end", os.preadv(fd, [one], page) == page + 100)
        check("as it is", one[:page + 100] == expected[page:page * 2 + 100])
        check("at the end", os.preadv(fd, [one], page * 3) == 0)
    # The file system decides whether it has to be aligned; what it accepts it must handle
    # correctly.
    try:
        check("unaligned", os.pwrite(fd, b"odd", 101) == 3)
        check("as written", os.pread(cached, 5, 100) == expected[100:101] + b"odd" + expected[104:105])
    except OSError as error:
        check("unaligned is refused", error.errno == errno.EINVAL)
    more = os.open("direct", os.O_WRONLY | os.O_APPEND | os.O_DIRECT)
    os.ftruncate(cached, page)
    with mmap.mmap(-1, page) as one:
        one[:] = b"e" * page
        os.writev(more, [one])
    check("appended", os.fstat(fd).st_size == 2 * page and os.pread(cached, page, page) == b"e" * page)


def main():
    directory = os.path.join(sys.argv[1], "calls")
    os.mkdir(directory)
    os.chmod(directory, 0o777)
    os.chdir(directory)
    os.umask(0o022)
    parts = [holes, copies, unnamed, renames, directories, big, times, locks, open_file_locks,
             interrupted_locks, direct]
    if ROOT:
        parts += [rights, attributes]
    else:
        parts.append(refusals)
    wanted = sys.argv[2:]
    for part in parts:
        if wanted and part.__name__ not in wanted:
            continue
        os.mkdir(part.__name__)
        os.chmod(part.__name__, 0o777)
        os.chdir(part.__name__)
        part()
        os.chdir("..")
    print(f"calls: {done} checks")
    if done == 0:
        sys.exit("calls: nothing ran")


main()
