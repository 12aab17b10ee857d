#!/usr/bin/env python3
"""Quotas of users, groups and directories through a mount, as ordinary users meet them (run by quota.sh).

    quota.py PANDO MOUNT     as root; MOUNT is empty
"""
import ctypes
import errno
import json
import mmap
import os
import pwd
import subprocess
import sys

pando, mount = sys.argv[1:]
ADA, BOB, STAFF = 4001, 4002, 4100
NOBODY = pwd.getpwnam("nobody")
BLOCK = 4096
NAME_BYTES = 512
WRITERS = 6
libc = ctypes.CDLL(None, use_errno=True)


def quota(*args):
    done = subprocess.run([pando, "quota", *args, "--json"], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"quota {args}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def used(*owner):
    got = quota("get", mount, *map(str, owner))[0]
    return got["inodes"], got["bytes"]


def settle(owner, want):
    """What was removed is given back in the background."""
    for _ in range(1200):
        if used(*owner) == want:
            return
        subprocess.run(["sleep", "0.1"], check=True)
    raise AssertionError(f"{owner}: {used(*owner)}, expected {want}")


def as_user(uid, gid, groups, work):
    """Runs work in a child with these rights; an exception there is one here."""
    child = os.fork()
    if child == 0:
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            os.umask(0)
            work()
            os._exit(0)
        except BaseException as error:  # the child must not run the rest
            print(f"as {uid}: {error!r}", file=sys.stderr)
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"as {uid}"


def refused(call, *args, number=errno.EDQUOT):
    try:
        call(*args)
    except OSError as error:
        assert error.errno == number, f"{call} {args}: {error}, expected {errno.errorcode[number]}"
        return
    raise AssertionError(f"{call} {args} was not refused")


def called(function, *args):
    if function(*args) != 0:
        raise OSError(ctypes.get_errno(), function.__name__)


def exchange(one, other):
    called(libc.renameat2, -100, one.encode(), -100, other.encode(), 2)


def name(fd, where):
    """Gives a file without a name one."""
    called(libc.linkat, -100, f"/proc/self/fd/{fd}".encode(), -100, where.encode(), 0x400)


def charged(directory):
    got = quota("get", path(directory))[0]
    return got["inodes"], got["bytes"]


def clone(source, target):
    subprocess.run([pando, "--quiet", "clone", path(source), path(target)], check=True,
                   stdout=subprocess.DEVNULL, timeout=600)


def write(path, offset, length):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o666)
    try:
        at = 0
        while at < length:
            at += os.pwrite(fd, b"x" * (length - at), offset + at)
    finally:
        os.close(fd)


def path(name):
    return os.path.join(mount, name)


def users():
    as_user(ADA, ADA, [], lambda: write(path("before"), 0, 10_000))
    quota("set", mount, "--user", str(ADA), "--inodes", "4", "--bytes", "64K")
    assert used("--user", ADA) == (1, 10_000), used("--user", ADA)

    def ada():
        os.mkdir(path("dir"))
        os.symlink("target", path("dir/link"))
        write(path("dir/file"), 0, 65536 - 10_000 - 6)
        refused(os.mkdir, path("dir/more"))
        refused(write, path("dir/another"), 0, 1)
        refused(write, path("before"), 10_000, 1)
        write(path("before"), 0, 10_000)
        refused(os.link, path("before"), path("dir/again"))
        os.truncate(path("before"), 1 << 30)
        os.truncate(path("before"), 5_000)
        os.link(path("before"), path("dir/again"))
        write(path("before"), 5_000, 5_000 - NAME_BYTES)
        refused(write, path("before"), 10_000 - NAME_BYTES, 1)
        mine = subprocess.run([pando, "quota", "get", mount, "--user", str(ADA), "--json"],
                              capture_output=True, text=True, timeout=600)
        assert json.loads(mine.stdout)["bytes"] == 65536, mine
        theirs = subprocess.run([pando, "quota", "get", mount, "--user", str(BOB)],
                                capture_output=True, timeout=600)
        assert theirs.returncode != 0, "the quota of another"
    as_user(ADA, ADA, [], ada)
    assert used("--user", ADA) == (4, 65536)
    as_user(BOB, BOB, [], lambda: write(path("bob"), 0, 100_000))
    write(path("dir/file"), 0, 100_000)  # root is not held, and Ada is charged
    assert used("--user", ADA)[1] == 10_000 + 6 + 100_000, used("--user", ADA)
    as_user(ADA, ADA, [], lambda: refused(write, path("before"), 10_000, 1))
    as_user(ADA, ADA, [], lambda: [os.unlink(path(f"dir/{name}")) for name in ("file", "link", "again")])
    settle(("--user", ADA), (2, 10_000 - NAME_BYTES))
    as_user(ADA, ADA, [], lambda: write(path("before"), 10_000 - NAME_BYTES, NAME_BYTES))


def mapping():
    """A mapping has no caller: the owner's limit holds, and what is over it is an error of msync."""
    def ada():
        fd = os.open(path("mapped"), os.O_CREAT | os.O_RDWR, 0o600)
        os.ftruncate(fd, 40 * BLOCK)
        with mmap.mmap(fd, 40 * BLOCK) as area:
            for page in range(40):
                area[page * BLOCK] = 1
            mapped = 0
            for call in (area.flush, lambda: os.fsync(fd), lambda: os.close(fd)):
                try:
                    call()
                except OSError as error:
                    assert error.errno in (errno.EDQUOT, errno.EIO, errno.ENOSPC), error
                    mapped += 1
            assert mapped, "more than the limit was mapped and written"
    as_user(ADA, ADA, [], ada)
    assert used("--user", ADA)[1] <= 65536, used("--user", ADA)
    os.unlink(path("mapped"))
    settle(("--user", ADA), (2, 10_000))
    # The kernel reports it to the next caller that writes back mapped data: nobody else is refused
    # for it.
    os.mkdir(path("elsewhere"))
    clone("elsewhere", "elsewhere too")
    as_user(ADA, ADA, [], ada)
    subprocess.run([pando, "--quiet", "sync", mount], check=True, stdout=subprocess.DEVNULL, timeout=600)
    os.unlink(path("mapped"))
    settle(("--user", ADA), (2, 10_000))


def groups():
    quota("set", mount, "--group", str(STAFF), "--bytes", "9999")
    as_user(ADA, ADA, [STAFF], lambda: refused(os.chown, path("before"), -1, STAFF))
    assert os.stat(path("before")).st_gid == ADA
    quota("set", mount, "--group", str(STAFF), "--bytes", "10000")
    as_user(ADA, ADA, [STAFF], lambda: os.chown(path("before"), -1, STAFF))
    assert used("--group", STAFF) == (1, 10_000) and used("--group", ADA) == (1, 0)
    os.chown(path("before"), BOB, BOB)
    assert used("--group", STAFF) == (0, 0) and used("--user", ADA) == (1, 0)
    assert used("--user", BOB) == (2, 110_000), used("--user", BOB)


def directories():
    as_user(BOB, BOB, [], lambda: [os.makedirs(path("tree/a/b")), write(path("tree/a/b/f"), 0, 50_000)])
    quota("set", path("tree"), "--bytes", "200K", "--inodes", "10")
    space = os.statvfs(path("tree/a"))
    assert space.f_bavail * space.f_frsize == (204_800 - 50_000) // BLOCK * BLOCK, space
    assert space.f_favail == 6 and os.statvfs(mount).f_bavail > space.f_bavail, space
    as_user(BOB, BOB, [], lambda: refused(write, path("tree/g"), 0, 154_801))
    as_user(BOB, BOB, [], lambda: write(path("tree/g"), 0, 154_800))
    refused(write, path("tree/g"), 154_800, 1)  # those of directories hold for root, too
    os.rename(path("tree/a/b/f"), path("tree/f"))
    try:
        os.rename(path("tree/f"), path("f"))
        raise AssertionError("moved out of a quota")
    except OSError as error:
        assert error.errno == errno.EXDEV, error


def borders():
    """Nothing comes from one domain to another by a name: each way, for root and for nobody."""
    def make():
        for top in ("one", "two", "none"):
            os.makedirs(path(f"{top}/d"))
            write(path(f"{top}/f"), 0, 1000)
            write(path(f"{top}/g"), 0, 10)
    as_user(NOBODY.pw_uid, NOBODY.pw_gid, [], make)
    for top in ("one", "two"):
        quota("set", path(top), "--bytes", "1M", "--inodes", "100")
    before = {top: charged(top) for top in ("one", "two")}
    assert before["one"] == before["two"] == (4, 1010), before

    def cross():
        for source, target in (("one", "two"), ("two", "one"), ("one", "none"), ("none", "one")):
            for what in ("f", "d"):
                refused(os.rename, path(f"{source}/{what}"), path(f"{target}/new"), number=errno.EXDEV)
            refused(os.rename, path(f"{source}/f"), path(f"{target}/g"), number=errno.EXDEV)
            refused(exchange, path(f"{source}/f"), path(f"{target}/g"), number=errno.EXDEV)
            refused(os.link, path(f"{source}/f"), path(f"{target}/new"), number=errno.EXDEV)
            assert not os.path.lexists(path(f"{target}/new"))
            fd = os.open(path(source), os.O_TMPFILE | os.O_RDWR, 0o600)
            os.write(fd, b"n" * 5000)
            refused(name, fd, path(f"{target}/new"), number=errno.EXDEV)
            name(fd, path(f"{source}/named"))
            os.close(fd)
            os.unlink(path(f"{source}/named"))
            # Within a domain all of that is allowed.
            os.link(path(f"{source}/f"), path(f"{source}/d/again"))
            os.rename(path(f"{source}/d/again"), path(f"{source}/g2"))
            os.unlink(path(f"{source}/g2"))
        assert open(path("one/f"), "rb").read() == b"x" * 1000
    as_user(NOBODY.pw_uid, NOBODY.pw_gid, [], cross)
    cross()
    for top in ("one", "two"):
        settle_directory(top, before[top])
    # The directory of the quota itself may move anywhere else.
    os.rename(path("one"), path("none/moved"))
    refused(os.rename, path("none/moved"), path("two/moved"), number=errno.EXDEV)
    os.rename(path("none/moved"), path("one"))
    assert charged("one") == before["one"]


def settle_directory(directory, want):
    for _ in range(1200):
        if charged(directory) == want:
            return
        subprocess.run(["sleep", "0.1"], check=True)
    raise AssertionError(f"{directory}: {charged(directory)}, expected {want}")


def names():
    """Bytes bound the names of a file, of a user and in a directory; what is removed is credited."""
    user = 4004
    nth = lambda number: path(f"linked/{number:0255}")
    as_user(user, user, [], lambda: [os.mkdir(path("linked")), write(path("linked/f"), 0, 100)])
    for of in ([path("linked")], [mount, "--user", str(user)]):
        quota("set", *of, "--bytes", str(100 + 20 * NAME_BYTES + NAME_BYTES - 1))

        def mine():
            for number in range(20):
                os.link(path("linked/f"), nth(number))
            refused(os.link, path("linked/f"), nth(20))
            os.unlink(nth(0))
            os.rename(nth(1), nth(0))
            os.link(path("linked/f"), nth(1))
            refused(os.link, path("linked/f"), nth(20))
        as_user(user, user, [], mine)
        if of[0] != mount:
            refused(os.link, path("linked/f"), nth(20))  # those of directories hold for root, too
        assert charged("linked") == used("--user", user) == (2, 100 + 20 * NAME_BYTES)
        assert os.stat(path("linked/f")).st_nlink == 21
        as_user(user, user, [], lambda: [os.unlink(nth(number)) for number in range(20)])
        settle_directory("linked", (2, 100))
        settle(("--user", user), (2, 100))
        quota("set", path("linked"), "--unlimited")


def clones():
    """What a clone inherits is charged to nobody, and what is made in it as anywhere."""
    def make():
        os.makedirs(path("cloned/d"))
        write(path("cloned/d/f"), 0, 300_000)
        write(path("cloned/small"), 0, 100)
    as_user(NOBODY.pw_uid, NOBODY.pw_gid, [], make)
    quota("set", path("cloned"), "--bytes", "400000", "--inodes", "10")
    directory, user = charged("cloned"), used("--user", NOBODY.pw_uid)
    assert directory == (4, 300_100), directory
    clone("cloned", "clone")
    os.mkdir(path("cloned/.snapshots/s"))
    assert charged("cloned") == directory and used("--user", NOBODY.pw_uid) == user

    def in_clone():
        # Changed data is charged as a whole, to the same quota; removed data returns nothing.
        os.unlink(path("clone/d/f"))
        write(path("clone/small"), 100, 50)
        write(path("clone/new"), 0, 1000)
        refused(write, path("clone/more"), 0, 400_000 - 300_100 - 150 - 1000 + 1)
        os.unlink(path("clone/more"))
    as_user(NOBODY.pw_uid, NOBODY.pw_gid, [], in_clone)
    settle_directory("cloned", (6, 300_100 + 150 + 1000))
    settle(("--user", NOBODY.pw_uid), (user[0] + 2, user[1] + 150 + 1000))
    subprocess.run([pando, "--quiet", "rmr", "--wait", path("clone")], check=True, stdout=subprocess.DEVNULL,
                   timeout=600)
    settle_directory("cloned", directory)
    settle(("--user", NOBODY.pw_uid), user)
    os.rmdir(path("cloned/.snapshots/s"))
    settle_directory("cloned", directory)


def together(directory, uid, limit, read):
    """Several writers until each is refused: never more than the limit, at no moment, and all of it."""
    children = []
    for writer in range(WRITERS):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                fd = os.open(path(f"{directory}/w{writer}"), os.O_CREAT | os.O_WRONLY, 0o600)
                at, step = 0, 7919 + writer
                while step:
                    try:
                        at += os.pwrite(fd, b"y" * step, at)
                    except OSError as error:
                        assert error.errno == errno.EDQUOT, error
                        step //= 2
                os.fsync(fd)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    seen, running = 0, set(children)
    while running:
        now = read()
        assert now <= limit, f"{now} bytes of {limit} are charged"
        seen = max(seen, now)
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                assert status == 0, "a writer"
                running.remove(child)
    sizes = sum(os.stat(path(f"{directory}/w{writer}")).st_size for writer in range(WRITERS))
    assert sizes == read() == limit, f"{sizes} bytes in files, {read()} charged, {limit} allowed"


def crowd():
    os.mkdir(path("crowd"))
    os.chown(path("crowd"), NOBODY.pw_uid, NOBODY.pw_gid)
    quota("set", path("crowd"), "--bytes", "3000001")
    together("crowd", NOBODY.pw_uid, 3_000_001, lambda: charged("crowd")[1])
    other = 4003
    os.mkdir(path("crowd of one"))
    os.chown(path("crowd of one"), other, other)
    quota("set", mount, "--user", str(other), "--bytes", "2000003")
    together("crowd of one", other, 2_000_003, lambda: used("--user", other)[1])


def at_the_byte():
    """As nobody: one byte less, that byte, and one more; as a user and in a directory."""
    before = used("--user", NOBODY.pw_uid)
    quota("set", mount, "--user", "nobody", "--bytes", str(before[1] + 12_345))

    def mine():
        write(path("last"), 0, 12_344)
        refused(write, path("last"), 12_344, 2)
        # What there was space for is written.
        assert os.stat(path("last")).st_size in (12_344, 12_345), os.stat(path("last"))
        os.truncate(path("last"), 12_344)
        write(path("last"), 12_344, 1)
        refused(write, path("last"), 12_345, 1)
        # What has its space already is overwritten.
        write(path("last"), 0, 12_345)
        fd = os.open(path("."), os.O_TMPFILE | os.O_RDWR, 0o600)
        refused(os.write, fd, b"z" * 5000)
        os.close(fd)
    as_user(NOBODY.pw_uid, NOBODY.pw_gid, [], mine)
    assert used("--user", NOBODY.pw_uid)[1] == before[1] + 12_345, used("--user", NOBODY.pw_uid)


os.chmod(mount, 0o777)
users()
mapping()
groups()
directories()
borders()
names()
clones()
crowd()
at_the_byte()
print("quotas hold for users, groups and directories")
