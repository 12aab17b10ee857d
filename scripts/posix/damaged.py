#!/usr/bin/env python3
"""Damage of one thing at a time in a volume, looked at through a mount as root and as nobody, then
repaired (run by damaged.sh).

    damaged.py fill MOUNT PANDO KNOWN             trees of root and of nobody, snapshots, clones
    damaged.py late MOUNT KNOWN                   files that only the log has
    damaged.py cases VOLUME PRISTINE PANDO MOUNT KNOWN [CASE...]
    damaged.py log VOLUME CRASHED PANDO MOUNT KNOWN

KNOWN: a file with all that there is: attributes, listings and contents of each path.
"""
import errno
import hashlib
import json
import os
import pickle
import pwd
import random
import shutil
import stat
import subprocess
import sys
import time

NOBODY = pwd.getpwnam("nobody")
PIECE = 4096
# The bit of an inode's number from which on it is that of its subvolume.
SUBVOLUME_AT = 40
SEED = int(os.environ.get("DAMAGED_SEED", "1"))
SMALL, SMALL_BYTES = 80, 200


def check(what, truth):
    if not truth:
        sys.exit(f"damaged: {what}")


def as_nobody(act):
    """In a child that is nobody: what it returns."""
    back, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(back)
            os.setgroups([])
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(act(), pipe)
            code = 0
        except BaseException as error:  # the child must not run the rest
            print(f"damaged: as nobody: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(back, "rb") as pipe:
        data = pipe.read()
    check("what nobody does", os.waitpid(child, 0)[1] == 0)
    return pickle.loads(data)


# --- the volume's content

def contents(name, length):
    """What no engine packs."""
    return random.Random(f"{SEED} {name}").randbytes(length)


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def fill_tree(top):
    """What one user has; anybody may read it."""
    os.makedirs(f"{top}/deep/deeper")
    os.makedirs(f"{top}/many")
    who = os.path.basename(top)
    for n in range(SMALL):
        with open(f"{top}/many/small {n}", "wb") as file:
            file.write(contents(f"{who} small {n}", SMALL_BYTES))
    for n, length in enumerate((70_000, 500_000, 9_000)):
        write(f"{top}/large {n}", contents(f"{who} large {n}", length))
    write(f"{top}/deep/deeper/file", contents(f"{who} deep", 30_000))
    os.link(f"{top}/large 0", f"{top}/deep/linked")
    os.symlink("../large 0", f"{top}/deep/link")
    os.setxattr(f"{top}/large 2", "user.note", who.encode() * 20)
    os.mkfifo(f"{top}/deep/fifo")
    with open(f"{top}/sparse", "wb") as file:
        file.seek(200_000)
        file.write(b"end")


def change_tree(top):
    """After a snapshot: from here on parts of it are the snapshot's alone."""
    who = os.path.basename(top)
    for n in range(0, SMALL, 10):
        with open(f"{top}/many/small {n}", "wb") as file:
            file.write(contents(f"{who} changed {n}", SMALL_BYTES))
    os.unlink(f"{top}/many/small 5")
    with open(f"{top}/large 1", "r+b") as file:
        file.seek(100_000)
        file.write(contents(f"{who} written over", 50_000))
    write(f"{top}/later", contents(f"{who} later", 20_000))


def fill(mount, pando, known):
    os.umask(0o022)
    for who in ("root", "nobody"):
        top = f"{mount}/{who}"
        os.mkdir(top)
        if who == "nobody":
            os.chown(top, NOBODY.pw_uid, NOBODY.pw_gid)
        run = as_nobody if who == "nobody" else (lambda act: act())

        def work():
            fill_tree(top)
            os.mkdir(f"{top}/.snapshots/before")
            change_tree(top)

        run(work)
        subprocess.run([pando, "--quiet", "clone", top, f"{mount}/clone of {who}"], check=True,
                       stdout=subprocess.DEVNULL)
    with open(f"{mount}/clone of root/mine alone", "wb") as file:
        file.write(contents("mine alone", 40_000))
    subprocess.run([pando, "search", "flush", mount], check=True, stdout=subprocess.DEVNULL)
    keep(mount, known)


def late(mount, known):
    """What the daemon's death leaves in the log alone, in this order."""
    for n in range(20):
        write(f"{mount}/late {n}", contents(f"late {n}", SMALL_BYTES))
        fd = os.open(f"{mount}/late {n}", os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    keep(mount, known)


# --- observation

def errors(act):
    """What it returns, or the number of its error."""
    try:
        return act(), None
    except OSError as error:
        return None, error.errno


def attributes(path):
    s = os.lstat(path)
    size = 0 if stat.S_ISDIR(s.st_mode) else s.st_size
    return (s.st_mode, s.st_uid, s.st_gid, s.st_nlink, size, s.st_mtime_ns, s.st_ctime_ns)


def notes(path):
    names = sorted(os.listxattr(path, follow_symlinks=False))
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names
            if name.startswith("user.") and not name.startswith("user.pando.")}


def pieces(path, length):
    """A file in pieces of a page, each as it reads, or with its error."""
    fd, failed = errors(lambda: os.open(path, os.O_RDONLY))
    if failed:
        return [(None, failed)]
    try:
        whole = errors(lambda: os.pread(fd, length + 1, 0))
        if whole[1] is None and len(whole[0]) == length:
            return whole[0]
        return [errors(lambda: os.pread(fd, PIECE, at)) for at in range(0, max(length, 1), PIECE)]
    finally:
        os.close(fd)


def keep(mount, known):
    """Remembers all that there is."""
    found, todo = {}, [""]
    while todo:
        at = todo.pop()
        path = f"{mount}/{at}".rstrip("/")
        one = {"attributes": attributes(path), "notes": notes(path), "number": os.lstat(path).st_ino}
        kind = stat.S_IFMT(one["attributes"][0])
        if kind == stat.S_IFDIR:
            one["names"] = sorted(os.listdir(path))
            hidden = f"{path}/.snapshots"
            more = []
            if not at.startswith(".snapshots") and os.path.isdir(hidden) and "/.snapshots" not in at:
                more = [f".snapshots/{name}" for name in os.listdir(hidden)]
            todo += [f"{at}/{name}".lstrip("/") for name in one["names"] + more]
        elif kind == stat.S_IFLNK:
            one["target"] = os.readlink(path)
        elif kind == stat.S_IFREG:
            with open(path, "rb") as file:
                one["contents"] = file.read()
        found[at] = one
    check("there is something to keep", len(found) > 20)
    with open(known, "wb") as file:
        pickle.dump(found, file)


def look(mount, known, gone=()):
    """Everything as it must be, or refused: the paths where something is, with what and its error.

    gone: paths that may be missing (after a repair that reported it)."""
    lost, wrong = {}, []

    def refused(at, what, number):
        if number == errno.ENOENT and any(at == one or at.startswith(f"{one}/") for one in gone):
            lost.setdefault(at, set()).add("gone")
        elif number == errno.EIO:
            lost.setdefault(at, set()).add(what)
        else:
            wrong.append(f"/{at}: {what}: {errno.errorcode.get(number, number)}")

    for at, one in sorted(known.items()):
        path = f"{mount}/{at}".rstrip("/")
        for what, act in (("attributes", attributes), ("notes", notes),
                          ("names", lambda p: sorted(os.listdir(p))), ("target", os.readlink)):
            if what not in one or what == "notes" and "/small " in at:
                continue
            got, number = errors(lambda: act(path))
            if number is not None:
                refused(at, what, number)
            elif got != one[what] and not fewer(at, what, got, one[what], gone):
                wrong.append(f"/{at}: {what}: {got}, not {one[what]}")
        if "contents" not in one:
            continue
        got = pieces(path, len(one["contents"]))
        if isinstance(got, bytes):
            if got != one["contents"]:
                wrong.append(f"/{at}: other contents")
            continue
        for n, (piece, number) in enumerate(got):
            if number is not None:
                refused(at, "contents", number)
            elif piece != one["contents"][n * PIECE:(n + 1) * PIECE]:
                wrong.append(f"/{at}: other contents in page {n}")
    return {at: sorted(whats) for at, whats in lost.items()}, wrong


def fewer(at, what, got, wanted, gone):
    """Whether it only lacks what may be gone, or has what was kept of that."""
    prefix = f"{at}/" if at else ""
    if what == "names":
        return bool(gone) and set(got) - set(wanted) <= {"lost+found", "lost+found.1"} and \
            all(prefix + name in gone for name in set(wanted) - set(got))
    # If names are gone, links are recounted and times of directories change with that.
    return what == "attributes" and bool(gone) and got[:3] == wanted[:3]


# --- damage

class Case:
    """A case of damage: a fresh volume, what is struck, and what may come of it."""

    def __init__(self, volume, pristine, pando, mount, known):
        self.volume, self.pristine, self.pando, self.mount = volume, pristine, pando, mount
        with open(known, "rb") as file:
            self.known = pickle.load(file)
        self.copy = pando
        if as_nobody(lambda: os.access(pando, os.X_OK)) is False:
            self.copy = os.path.join(os.path.dirname(volume), "pando")
            shutil.copy(pando, self.copy)
            os.chmod(self.copy, 0o755)

    def restore(self):
        shutil.rmtree(self.volume, ignore_errors=True)
        subprocess.run(["cp", "-a", "--sparse=always", self.pristine, self.volume], check=True)

    def run(self, *arguments, codes=(0,), nobody=False):
        """Runs a command; its objects and its other output."""
        def act():
            done = subprocess.run([self.copy if nobody else self.pando, *arguments], text=True,
                                  capture_output=True, timeout=300, cwd="/")
            return done.returncode, done.stdout, done.stderr
        code, out, err = as_nobody(act) if nobody else act()
        shown = f"pando {' '.join(arguments)}: code {code}: {out[-1500:]}{err[-1500:]}"
        check(shown, code in codes)
        check(f"it panics: {shown}", "panic" not in err)
        return code, out, err

    def fsck(self, place, nobody=False, codes=(0, 5)):
        """Findings of a check."""
        code, out, err = self.run("fsck", "--json", place, codes=codes, nobody=nobody)
        lines = [json.loads(line) for line in out.splitlines()]
        found = [line for line in lines if "finding" in line]
        check(f"{place}: code {code} with {len(found)} findings", (code == 5) == bool(found))
        return found

    def files(self, *directories):
        for directory in directories:
            if os.path.isdir(f"{self.volume}/{directory}"):
                yield from (f"{directory}/{name}" for name in sorted(os.listdir(f"{self.volume}/{directory}")))

    def read(self, name):
        with open(os.path.join(self.volume, name), "rb") as file:
            return file.read()

    def strike(self, name, at, how="flip"):
        """Damages a file; where that is. To flip a bit twice repairs it."""
        path = os.path.join(self.volume, name)
        if how == "cut":
            os.truncate(path, at)
            return name, at
        with open(path, "r+b") as file:
            file.seek(at)
            old = file.read(1 if how == "flip" else 200)
            file.seek(at)
            file.write(bytes([old[0] ^ 0x10]) if how == "flip" else bytes(len(old)))
        return name, at

    def find(self, data, *directories):
        """Places where something is stored: contents identify them."""
        for name in self.files(*directories):
            whole = self.read(name)
            at = whole.find(data)
            while at >= 0:
                yield name, at
                at = whole.find(data, at + 1)

    def records(self, wanted):
        """A place among the engine's records for which a check reports the requested part."""
        for name, at in self.places() if wanted is in_part else self.steps():
            self.strike(name, at)
            found = self.fsck(self.volume)
            if found and wanted(found):
                return name, at
            self.strike(name, at)
        return check("no place among the records is struck as it should be", False)

    def places(self):
        """Places of records: those of small contents first, then starts of nodes and steps."""
        seen = set()
        for who in ("nobody", "root"):
            for n in (77, 20, 41):
                for place in self.find(contents(f"{who} small {n}", SMALL_BYTES)[:40], "btree", "lsm"):
                    if place not in seen:
                        seen.add(place)
                        yield place
        # The last ones written are the current ones.
        yield from reversed(list(self.steps()))

    def steps(self):
        """Places of nodes, and of each block of a run."""
        for name in self.files("btree", "lsm"):
            if "super" in name or "manifest" in name or "copy" in name:
                continue
            whole = self.read(name)
            if name == "btree/nodes":
                steps = [at + 40 for at in range(0, len(whole) - 40, 1024) if whole[at:at + 4] == b"PNOD"]
            else:
                # A run of the copies has disk blocks of its own.
                steps = sorted({*range(60, len(whole), 1500), *range(4096 + 20, len(whole), 4096)})
            yield from ((name, at) for at in steps)


def own(found):
    return any(one["remedy"].startswith("rebuild the tree") for one in found) and not copies(found)


def copies(found):
    return any(one["what"].startswith("a copy of the volume's records") for one in found)


def in_part(found):
    """Not of the way to everything."""
    top = any(one["path"] == "/" or one["subvolume"] == 1 and "the first directory" in one["what"] for one in found)
    return not own(found) and not copies(found) and not top and \
        any(one["finding"] == "unreadable" and one["path"] for one in found)


def newest(case, prefix):
    return max(name for name in case.files("lsm", "index") if name.startswith(prefix))


def in_index(case):
    """A place of the index that a check reports. A file that an earlier base left may be there, too,
    where the machine was slow; nothing reads that one."""
    for name in sorted(case.files("index"), reverse=True):
        if "/cluster-" in name:
            case.strike(name, 300)
            if case.fsck(case.volume):
                return name, 300
            case.strike(name, 300)
    return check("no file of the index is struck as it should be", False)


def segment(case, who, part):
    """The place of the contents of a file."""
    place = next(case.find(contents(f"{who} {part}", 9_000)[4096:4200], "data/open", "data/sealed"), None)
    check(f"contents of {who}'s {part} are nowhere", place is not None)
    return place


# name: how it is damaged, and the allowed outcome. `repaired`: everything is there at once (except
# what quotas report), and a repair leaves no finding; `healed`: mounting rewrites it; `part`:
# something is refused, and stays so; `closed`: it cannot be mounted until it is repaired.
CASES = {
    "contents": (lambda c: c.strike(*segment(c, "nobody", "large 0")), "part"),
    "contents, zeros": (lambda c: c.strike(*segment(c, "root", "large 2"), "zeros"), "part"),
    "contents, cut off": (lambda c: c.strike(*segment(c, "nobody", "later"), "cut"), "part"),
    "record": (lambda c: c.records(in_part), "part"),
    "own records": (lambda c: c.records(own), "repaired"),
    "copies of own records": (lambda c: c.records(copies), "repaired"),
    "state": (lambda c: c.strike("btree/super-0", 70) if os.path.isdir(f"{c.volume}/btree")
              else c.strike(newest(c, "lsm/manifest-"), 70), "healed"),
    "copy of the state": (lambda c: c.strike("btree/super-1", 70, "zeros") if os.path.isdir(f"{c.volume}/btree")
                          else c.strike(newest(c, "lsm/copy-"), 70, "zeros"), "healed"),
    "header": (lambda c: c.strike("volume.pando", 30), "closed"),
    "index": (in_index, "repaired"),
}


def named(found, name, at):
    """Whether a check names the place: what it names begins there or before. (An open segment is
    sealed by the next mount.)"""
    return any(one["file"].replace("data/sealed/", "data/open/") == name.replace("data/sealed/", "data/open/")
               and one["offset"] <= at < one["offset"] + (1 << 20) for one in found)


def covered(path, found, known):
    """Whether a check names what is refused, by one of its names, or something above it, or reports
    that so many records of its subvolume cannot be read."""
    places = [one["path"].strip("/") for one in found if one["path"]]
    names = [name for name, one in known.items() if one["number"] == known[path]["number"]]
    if any(name == place or name.startswith(f"{place}/") or place == "" for place in places for name in names):
        return True
    parts = path.split("/")
    above = ["/".join(parts[:n]) for n in range(len(parts) + 1)]
    subvolumes = {known[at]["number"] >> SUBVOLUME_AT or 1 for at in above if at in known}
    return any(one["subvolume"] in subvolumes and one["file"] and one["what"].startswith("keys from")
               for one in found)


def mount(case, codes=(0,)):
    return case.run("mount", "-o", "suid,dev", case.volume, case.mount, codes=codes)


def both_look(case, gone=()):
    """What root sees; nobody must see the same."""
    lost, wrong = look(case.mount, case.known, gone)
    check(f"as root: {wrong[:3]}", not wrong)
    theirs, wrong = as_nobody(lambda: look(case.mount, case.known, gone))
    check(f"as nobody: {wrong[:3]}", not wrong)
    # If it is unknown whether a file has an access list, only its owner may open it.
    listless = [at for at in lost if "notes" in lost[at] and "notes" in theirs.get(at, ())]
    one, other = ({at: whats for at, whats in all_lost.items() if at not in listless} for all_lost in (lost, theirs))
    check(f"root is refused {differs(one, other)} and nobody {differs(other, one)}", one == other)
    return {**theirs, **lost}


def differs(one, other):
    return sorted(set(one) - set(other))[:5] or [(at, one[at]) for at in one if one[at] != other.get(at)][:5]


def refusals(case):
    """A user who may not read the whole volume, or repair it, gets an exit code of its own."""
    for arguments in (("fsck",), ("fsck", "--repair"), ("fsck", "--repair", "--discard-log")):
        _, _, err = case.run(*arguments, case.volume, codes=(4,), nobody=True)
        refused = "ermission denied" in err or "only root, the owner of the volume" in err
        check(f"an ordinary user is refused: {err}", refused and case.volume in err)


def kept(case):
    """What a repair kept without a place is something that was there."""
    known = {hashlib.sha256(one["contents"]).digest() for one in case.known.values() if "contents" in one}
    count = 0
    for top, _, names in os.walk(case.mount):
        if "lost+found" not in os.path.basename(top):
            continue
        for name in names:
            path = os.path.join(top, name)
            check(f"{path} has a name of an inode", name.startswith("#"))
            if stat.S_ISREG(os.lstat(path).st_mode):
                got, number = errors(lambda: open(path, "rb").read())
                check(f"{path}: {number}", number in (None, errno.EIO))
                check(f"{path} has contents that nothing had", number or hashlib.sha256(got).digest() in known)
            count += 1
    return count


def write_on(case, in_part):
    """It is written to as before, by both; a change that takes what is lost is refused."""
    def new(path):
        write(path, b"fresh")
        with open(path, "rb") as file:
            check("what is new reads", file.read() == b"fresh")

    def own():
        os.mkdir(f"{case.mount}/nobody's")
        os.chown(f"{case.mount}/nobody's", NOBODY.pw_uid, NOBODY.pw_gid)
        failed = as_nobody(lambda: errors(lambda: new(f"{case.mount}/nobody's/fresh")))[1]
        check(f"nobody writes: {failed}", failed in ((None, errno.EIO) if in_part else (None,)))

    for act in (lambda: new(f"{case.mount}/fresh"), own):
        failed = errors(act)[1]
        check(f"writing after the repair: {failed}", failed in ((None, errno.EIO) if in_part else (None,)))


def mounted(case, title, place, may):
    """Mounts it and reads all; what was refused."""
    name, at = place
    code, _, err = mount(case, codes=(0, 5))
    check(f"{title}: the mount ends with {code}", (code == 5) == (may == "closed"))
    if code == 5:
        check(f"{title}: the mount is refused without the name of the file: {err}", name in err)
        return {}
    lost = both_look(case)
    found = case.fsck(case.mount)
    if may == "healed":
        check(f"{title}: it was rewritten, and {found[:2]}", not found)
    else:
        check(f"{title}: {name}, byte {at}, is not named: {found[:3]}", named(found, name, at))
    missed = [(path, lost[path], hex(case.known[path]["number"])) for path in lost
              if not covered(path, found, case.known)]
    check(f"{title}: refused and not named: {missed[:5]}", not missed)
    _, _, err = case.run("fsck", "--repair", case.volume, codes=(6,))
    check(f"{title}: it is mounted, and a repair prints: {err}", "mounted" in err)
    refusals(case)
    _, _, err = case.run("umount", case.mount, codes=(4,), nobody=True)
    check(f"who did not mount it unmounts it: {err}", "another user" in err)
    for nobody in (False, True):
        _, out, _ = case.run("find", case.mount, "-name", "large 2", codes=(0, 5), nobody=nobody)
        check(f"{title}: found are {out}", may == "part" or len(out.splitlines()) == 4)
    case.run("umount", case.mount)
    return lost


def repaired(case, title, may):
    """Prints what it would do, does it, once as an ordinary user whose the volume is."""
    before = case.fsck(case.volume, codes=(5,))
    case.run("fsck", "--repair", "--dry-run", case.volume, codes=(5,))
    check(f"{title}: a dry run changes something", case.fsck(case.volume) == before)
    owned = may == "healed"
    if owned:
        subprocess.run(["chown", "-R", "nobody:nogroup", case.volume], check=True)
    code, out, _ = case.run("fsck", "--repair", case.volume, codes=(0, 5), nobody=owned)
    if owned:
        subprocess.run(["chown", "-R", "root:root", case.volume], check=True)
    check(f"{title}: after the repair: {out}", code == (5 if may == "part" else 0))


def one_case(case, title, strike, may):
    start = time.monotonic()
    case.restore()
    name, at = strike(case)
    offline = case.fsck(case.volume, codes=(5,))
    check(f"{title}: {name}, byte {at}, is not named offline: {offline[:3]}", named(offline, name, at))
    refusals(case)
    lost = mounted(case, title, (name, at), may)
    check(f"{title}: {sorted(lost)[:5]} are refused", bool(lost) == (may == "part"))
    if may == "healed":
        case.restore()
        strike(case)
    repaired(case, title, may)
    mount(case)
    after = both_look(case, lost)
    more = [path for path in after if path not in lost]
    check(f"{title}: the repair lost {more[:5]}", not more)
    left = kept(case)
    beside = case.fsck(case.mount)
    check(f"{title}: {beside[:2]} after the repair", bool(beside) == (may == "part"))
    write_on(case, may == "part")
    case.run("umount", case.mount)
    check(f"{title}: fsck after all", bool(case.fsck(case.volume)) == (may == "part"))
    print(f"damaged: {title:24} {name}, byte {at}: {len(lost)} of {len(case.known)} paths refused, "
          f"{len(after)} after the repair, {left} kept; {len(offline)} findings, then {len(beside)} "
          f"({time.monotonic() - start:.1f} s)", flush=True)


def cases(case, wanted):
    for title, (strike, may) in CASES.items():
        if not wanted or title in wanted:
            one_case(case, title, strike, may)


def log(case, _):
    """A record in the middle of the log: closed until that is cut off, and then as it was once."""
    case.restore()
    place = next(case.find(contents("late 8", SMALL_BYTES), "log"), None)
    check("the log does not have the late files", place is not None)
    name, at = case.strike(place[0], place[1])
    check("the log is named", name in mount(case, codes=(5,))[2])
    check("the log is named by the check", named(case.fsck(case.volume, codes=(5,)), name, at))
    refusals(case)
    case.run("fsck", "--repair", case.volume, codes=(5,))
    mount(case, codes=(5,))
    case.run("fsck", "--repair", "--discard-log", case.volume)
    mount(case)
    names = [f"late {n}" for n in range(20)]
    there = [name for name in names if os.path.lexists(f"{case.mount}/{name}")]
    check(f"{there} are no first ones", there == names[:len(there)] and len(there) <= 9)
    check(f"files before the damage: {there}", len(there) >= 8)
    for name in there[:8]:
        check(f"{name} is as written", open(f"{case.mount}/{name}", "rb").read() == case.known[name]["contents"])
    for name in names:
        case.known.pop(name)
    case.known.pop("")
    check("what was there before is", not both_look(case))
    case.run("umount", case.mount)
    case.fsck(case.volume, codes=(0,))
    print(f"damaged: log{'':21} {place[0]}, byte {at}: cut off, {len(there)} of 20 late files left")


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(*sys.argv[2:5])
    elif sys.argv[1] == "late":
        late(*sys.argv[2:4])
    else:
        (cases if sys.argv[1] == "cases" else log)(Case(*sys.argv[2:7]), sys.argv[7:])
