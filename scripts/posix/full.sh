#!/usr/bin/env bash
# A disk that fills up, as an ordinary user of the mount sees it: ENOSPC for contents and for names,
# in root's directories and in nobody's; durable data is readable; removals free space, and what is
# written then is there after the next mount; the volume is clean.
#   scripts/posix/full.sh
#   FULL_USERS=root                        as these users; otherwise as nobody, and then as root
. "$(dirname "$0")/lib.sh"
skip_without_mounts
mkdir "$work/small"
mount -t tmpfs -o size=64m pando-small "$work/small" || fail "no small disk"
trap 'timeout 60 "$pando" umount "$mnt" >/dev/null 2>&1 || true; umount -l "$work/small"; clean_up' EXIT
volume=$work/small/volume
mount_pando suid,dev

cat > "$work/full.py" <<'PYTHON'
"""full.py MOUNT fill|verify USER: fills the disk in a directory of the user's, or reads what is left."""
import errno, os, pwd, random, sys, time

mount, what, user = sys.argv[1:4]
account = pwd.getpwnam(user)
if user != "root":
    os.setgroups([])
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
os.chdir(f"{mount}/{user}")


def check(text, truth):
    if not truth:
        sys.exit(f"full, {user}: {text}")


def contents(n):
    return random.Random(n).randbytes(1_000_000)


def full(act):
    """Whether it is refused with ENOSPC; nothing else may refuse it."""
    try:
        act()
    except OSError as error:
        check(f"refused with {errno.errorcode[error.errno]}", error.errno == errno.ENOSPC)
        return True
    return False


def write(name, data):
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        while data:
            data = data[os.write(fd, data):]
        os.fsync(fd)
    finally:
        os.close(fd)


def fill():
    whole = 0
    while not full(lambda: write(f"f{whole}", contents(whole))):
        whole += 1
        check("a disk of 64 MiB takes more", whole < 100)
    check(f"only {whole} files until it was full", whole > 10)
    # Names, until there is no space even for those.
    made = 0
    os.mkdir("names") if not os.path.exists("names") else None
    while made < 50_000 and not full(lambda: os.symlink("t" * 4000, f"names/{'n' * 200}{made}")):
        made += 1
    check("a full disk takes names without end", made < 50_000)
    for n in range(whole):
        with open(f"f{n}", "rb") as file:
            check(f"f{n} of the full disk", file.read() == contents(n))
    check("a full disk is listed", len(os.listdir("names")) == made)
    check("what a link contains", made == 0 or os.readlink(f"names/{'n' * 200}{made - 1}") == "t" * 4000)
    space = os.statvfs(".")
    check(f"statvfs reports {space.f_bavail * space.f_frsize} bytes", space.f_bavail * space.f_frsize < 40 << 20)
    for n in range(0, whole, 2):
        os.unlink(f"f{n}")
    end = time.monotonic() + 120
    while full(lambda: write("again", contents(77))):
        check("there is no space after removals", time.monotonic() < end)
        time.sleep(0.1)
    return whole, made


def verify():
    kept = [name for name in os.listdir(".") if name.startswith("f")]
    for name in kept:
        with open(name, "rb") as file:
            data = file.read()
        n = int(name[1:])
        # The last one was cut short, because there was no space for it.
        check(f"{name} is not as written", data == contents(n)[:len(data)])
        check(f"{name} is short", len(data) == 1_000_000 or n == max(int(one[1:]) for one in kept))
    with open("again", "rb") as file:
        check("what was written after removals", file.read() == contents(77))
    return len(kept), len(os.listdir("names"))


print(f"full: {what} as {user}: %d files, %d names" % (fill() if what == "fill" else verify()))
PYTHON

for user in ${FULL_USERS:-nobody root}; do
  install -d -o "$user" "$mnt/$user"
  python3 "$work/full.py" "$mnt" fill "$user" || fail "a full disk, as $user"
  python3 "$work/full.py" "$mnt" verify "$user" || fail "what is there then, as $user"
  "$pando" fsck "$mnt" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "fsck beside the full disk"; }
  "$pando" umount "$mnt" > /dev/null || fail "a full disk cannot be unmounted"
  "$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
  mount_pando suid,dev
  python3 "$work/full.py" "$mnt" verify "$user" || fail "what is there after the next mount, as $user"
  "$pando" rmr --wait "$mnt/$user/names" > /dev/null || fail "names cannot be removed"
  rm "$mnt/$user"/f*
done
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
echo "$suite: a full disk refused contents and names with ENOSPC, and lost nothing"
