#!/usr/bin/env python3
"""Calls that must have the same result here and on ext4: prints each result (run by beside.sh).

    beside.py DIRECTORY      a directory of a mounted file system, as root
"""
import ctypes
import errno
import os
import stat
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
KEEP, PUNCH, ZERO = 1, 2, 16
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4
CAPABILITY = "security.capability"
OWNER, OTHER = 1000, 3000


def call(function, *arguments):
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def rename2(old, new, flags):
    call(libc.renameat2, -100, old.encode(), -100, new.encode(), flags)


def emit(*words):
    print(*words, flush=True)


def as_user(uid, act):
    """Does something as a user, in a child: "ok", or the name of its error."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            if uid:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            act()
            code = 0
        except OSError as error:
            code = error.errno
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return errno.errorcode.get(code, code) if code else "ok"


def show(top):
    """All names below a directory, with what they point to."""
    for place, directories, files in os.walk(top):
        directories.sort()
        for name in [""] + sorted(directories + files):
            path = os.path.join(place, name)
            s = os.lstat(path)
            size = 0 if stat.S_ISDIR(s.st_mode) else s.st_size
            emit("  ", path, oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink, size, s.st_rdev)


def whiteouts():
    """A name that moves and leaves a whiteout, and whiteouts that are made."""
    for uid in (0, OWNER):
        top = f"whiteouts-{uid}"
        os.mkdir(top)
        for name in ("from", "to", "from/directory"):
            os.mkdir(f"{top}/{name}")
        for name in ("from/file", "from/linked", "from/over", "to/victim", "from/directory/below"):
            with open(f"{top}/{name}", "w") as file:
                file.write(name)
        os.link(f"{top}/from/linked", f"{top}/from/other")
        os.symlink("nowhere", f"{top}/from/link")
        os.setxattr(f"{top}/from/over", "user.a", b"b")
        for place, directories, files in os.walk(top):
            for name in [""] + directories + files:
                os.chown(os.path.join(place, name), uid, uid, follow_symlinks=False)
        # A new entry in it has its group.
        os.chown(f"{top}/from", uid, 50)
        os.chmod(f"{top}/from", 0o2755)
        for old, new, flags in [
            ("from/file", "to/file", WHITEOUT),
            ("from/linked", "from/renamed", WHITEOUT | NOREPLACE),
            ("from/over", "to/victim", WHITEOUT),
            ("from/directory", "to/directory", WHITEOUT),
            ("from/link", "from/link-2", WHITEOUT),
            ("from/renamed", "from/other", WHITEOUT),
            ("from/renamed", "from/renamed", WHITEOUT),
            ("to/file", "to/victim", WHITEOUT | NOREPLACE),
            ("to/file", "to/victim", WHITEOUT | EXCHANGE),
            ("to/none", "to/victim", WHITEOUT),
            ("to/file", "from/file", WHITEOUT),
            ("to/directory", "from/over", WHITEOUT),
            ("from/over", "to/moved-whiteout", 0),
        ]:
            emit(uid, old, new, flags, as_user(uid, lambda: rename2(f"{top}/{old}", f"{top}/{new}", flags)))
        os.mkdir(f"{top}/closed")
        open(f"{top}/closed/file", "w").close()
        emit(uid, "not one's own", as_user(uid, lambda: rename2(f"{top}/closed/file", f"{top}/to/x", WHITEOUT)))
        for kind, device in ((stat.S_IFCHR, 0), (stat.S_IFBLK, 0), (stat.S_IFCHR, os.makedev(1, 3))):
            name = f"{top}/to/made-{kind}-{device}"
            emit(uid, "mknod", oct(kind), device, as_user(uid, lambda: os.mknod(name, kind | 0o644, device)))
        emit(uid, "open", as_user(uid, lambda: os.open(f"{top}/to/file", os.O_RDONLY)))
        emit(uid, "unlink", as_user(uid, lambda: os.unlink(f"{top}/from/link")))
        show(top)


def writer(what):
    """A call that changes contents, given a path."""
    def act(path):
        fd = os.open(path, os.O_RDWR)
        if what == "write":
            os.pwrite(fd, b"written", 0)
        elif what == "truncate":
            os.ftruncate(fd, 100)
        elif what == "copy_file_range":
            os.copy_file_range(os.open("source", os.O_RDONLY), fd, 50, 0, 0)
        elif what == "copy_file_range, long":
            os.copy_file_range(os.open("source", os.O_RDONLY), fd, 100000, 0, 0)
        else:
            mode = {"fallocate": 0, "keep": KEEP, "punch": PUNCH | KEEP, "zero": ZERO}[what]
            call(libc.fallocate, fd, mode, 0, 5000)
    return act


WRITERS = ("write", "truncate", "copy_file_range", "copy_file_range, long", "fallocate", "keep", "punch", "zero")


def without_fsetid(act):
    """A superuser without CAP_FSETID, who may not keep set-id bits of changed files."""
    def bare():
        head = (ctypes.c_uint32 * 2)(0x20080522, 0)
        sets = (ctypes.c_uint32 * 6)()
        call(libc.capget, head, sets)
        for at in (0, 1):
            sets[at] &= ~(1 << 4)
        call(libc.capset, head, sets)
        act()
    return bare


def rights():
    """Set-id bits and capabilities, after a change of contents by the owner, another and root."""
    with open("source", "wb") as file:
        file.write(os.urandom(100000))
    # cap_chown, effective, in the second version of the structure.
    capability = bytes([1, 0, 0, 2, 1]) + bytes(15)
    for uid in (OWNER, OTHER, 0):
        for what in WRITERS:
            for closed in (False, True):
                path = f"rights-{uid}-{what}-{closed}"
                with open(path, "wb") as file:
                    file.write(b"x" * 20000)
                os.chown(path, OWNER, OWNER)
                os.chmod(path, 0o6777)
                os.setxattr(path, CAPABILITY, capability)
                if closed:
                    # No process may execute it meanwhile.
                    os.chmod(path, 0o666)
                done = as_user(uid, lambda: writer(what)(path))
                after = oct(os.stat(path).st_mode)
                os.chmod(path, 0o755)
                emit(uid, what, closed, done, after, CAPABILITY in os.listxattr(path))
    for what in WRITERS:
        path = f"bare-{what}"
        with open(path, "wb") as file:
            file.write(b"x" * 20000)
        os.chown(path, OWNER, OWNER)
        os.chmod(path, 0o6777)
        emit("bare", what, as_user(0, without_fsetid(lambda: writer(what)(path))), oct(os.stat(path).st_mode))
    path = "owner"
    open(path, "w").close()
    for mode in (0o755, 0o644):
        os.chmod(path, mode)
        os.setxattr(path, CAPABILITY, capability)
        os.chown(path, 7, 7)
        emit("chown", oct(mode), CAPABILITY in os.listxattr(path))


def times():
    """When a file or a link was read, as relatime has it."""
    old = time.time_ns() - 3600 * 10**9
    def noted(path, act):
        os.utime(path, ns=(old, old), follow_symlinks=False)
        before = os.lstat(path).st_atime_ns
        act()
        first = os.lstat(path).st_atime_ns
        act()
        return (first != before, os.lstat(path).st_atime_ns != first)
    def reader(path, flags):
        def act():
            fd = os.open(path, os.O_RDONLY | flags)
            os.read(fd, 100)
            os.close(fd)
        return act
    for length in (10, 100000):
        for what, flags in (("read", 0), ("O_NOATIME", os.O_NOATIME)):
            path = f"time-{length}-{what}"
            with open(path, "wb") as file:
                file.write(b"x" * length)
            # What the kernel has cached is read without a request.
            with open("/proc/sys/vm/drop_caches", "w") as drop:
                drop.write("1")
            emit(what, length, noted(path, reader(path, flags)))
    os.symlink("time-10-read", "link")
    emit("readlink", noted("link", lambda: os.readlink("link")))
    os.symlink("time-10-read", "followed")
    emit("followed", noted("followed", lambda: os.stat("followed")))


os.chdir(sys.argv[1])
os.chmod(".", 0o777)
os.umask(0)
whiteouts()
rights()
times()
