#!/usr/bin/env python3
"""Quotas of users, groups and directories through a mount, as ordinary users meet them (run by quota.sh).

    quota.py PANDO MOUNT     as root; MOUNT is empty
"""
import errno
import json
import mmap
import os
import subprocess
import sys

pando, mount = sys.argv[1:]
ADA, BOB, STAFF = 4001, 4002, 4100
BLOCK = 4096


def quota(*args):
    done = subprocess.run([pando, "quota", *args, "--json"], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"quota {args}: {done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def used(*owner):
    got = quota("get", mount, *map(str, owner))[0]
    return got["files"], got["bytes"]


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


def refused(call, *args):
    try:
        call(*args)
    except OSError as error:
        assert error.errno == errno.EDQUOT, error
        return
    raise AssertionError(f"{call} {args} was not refused")


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
    quota("set", mount, "--user", str(ADA), "--files", "4", "--bytes", "64K")
    assert used("--user", ADA) == (1, 10_000), used("--user", ADA)

    def ada():
        os.mkdir(path("dir"))
        os.symlink("target", path("dir/link"))
        write(path("dir/file"), 0, 65536 - 10_000 - 6)
        refused(os.mkdir, path("dir/more"))
        refused(write, path("dir/another"), 0, 1)
        refused(write, path("before"), 10_000, 1)
        write(path("before"), 0, 10_000)
        os.link(path("before"), path("dir/again"))
        os.truncate(path("before"), 1 << 30)
        os.truncate(path("before"), 5_000)
        write(path("before"), 5_000, 5_000)
        refused(write, path("before"), 10_000, 1)
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
    settle(("--user", ADA), (2, 10_000))


def mapping():
    """A mapping has no caller: the owner's limit holds, and what is over it is an error of msync."""
    def ada():
        fd = os.open(path("mapped"), os.O_CREAT | os.O_RDWR, 0o600)
        os.ftruncate(fd, 40 * BLOCK)
        with mmap.mmap(fd, 40 * BLOCK) as area:
            for page in range(40):
                area[page * BLOCK] = 1
            told = 0
            for call in (area.flush, lambda: os.fsync(fd), lambda: os.close(fd)):
                try:
                    call()
                except OSError as error:
                    assert error.errno in (errno.EDQUOT, errno.EIO, errno.ENOSPC), error
                    told += 1
            assert told, "more than the limit was mapped and written"
    as_user(ADA, ADA, [], ada)
    assert used("--user", ADA)[1] <= 65536, used("--user", ADA)
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
    quota("set", path("tree"), "--bytes", "200K", "--files", "10")
    room = os.statvfs(path("tree/a"))
    assert room.f_bavail * room.f_frsize == (204_800 - 50_000) // BLOCK * BLOCK, room
    assert room.f_favail == 6 and os.statvfs(mount).f_bavail > room.f_bavail, room
    as_user(BOB, BOB, [], lambda: refused(write, path("tree/g"), 0, 154_801))
    as_user(BOB, BOB, [], lambda: write(path("tree/g"), 0, 154_800))
    refused(write, path("tree/g"), 154_800, 1)  # those of directories hold for root, too
    os.rename(path("tree/a/b/f"), path("tree/f"))
    try:
        os.rename(path("tree/f"), path("f"))
        raise AssertionError("moved out of a quota")
    except OSError as error:
        assert error.errno == errno.EXDEV, error


os.chmod(mount, 0o777)
users()
mapping()
groups()
directories()
print("quotas hold for users, groups and directories")
