#!/usr/bin/env bash
# A volume that an ordinary user formats, mounts through fusermount3, checks, kills and unmounts:
# the calls, coherence, times, totals and shared extents of programs.sh there, and that nobody else
# is let in, root neither.
#   scripts/posix/own_mount.sh
# In a name space of mounts of its own, where everybody may open /dev/fuse, as on most machines.
if [ -z "${SKIP_FUSE:-}" ] && [ "$(id -u)" -eq 0 ] && [ -z "${OWN_MOUNT_INSIDE:-}" ]; then
  exec unshare --mount env OWN_MOUNT_INSIDE=1 bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
skip_without_mounts
mknod -m 666 "$work/fuse" c 10 229
mount --bind "$work/fuse" /dev/fuse
fusermount=$(command -v fusermount3) || fail "fusermount3 is missing: run 'make setup'"
[ -u "$fusermount" ] || fail "$fusermount is not set-uid: no ordinary user can mount"
for script in calls coherence atime totals extents; do
  cp "scripts/posix/$script.py" "$work"
done
chmod a+r "$work"/*.py
install -d -o nobody -g nogroup "$work/home" "$work/home/mnt"
# What clean_up takes away.
volume=$work/home/volume mnt=$work/home/mnt

as() { # USER COMMAND...
  local user=$1
  shift
  setpriv --reuid "$user" --regid nogroup --clear-groups env HOME="$work/home" "$@"
}
as nobody test -x "$pando" || {
  cp "$pando" "$work/pando"
  pando=$work/pando
}
cd /

as nobody "$pando" format ${PANDO_ENGINE:+--engine "$PANDO_ENGINE"} "$volume" > /dev/null
# What an ordinary user may not have is not had by asking for it.
as nobody "$pando" mount -o suid,dev "$volume" "$mnt" > /dev/null
# (Root is not let in to see what `mountpoint` looks at.)
options=,$(findmnt -no OPTIONS "$mnt"),
for option in nosuid nodev "user_id=$(id -u nobody)" default_permissions; do
  case $options in *,"$option",*) ;; *) fail "the mount is without $option: $options" ;; esac
done
case $options in *,allow_other,*) fail "others are let in" ;; esac
[ "$(as nobody stat -c %U "$mnt")" = nobody ] || fail "the root of the volume is not its user's"
head -c 300000 /dev/urandom | as nobody tee "$mnt/kept" > /dev/null
for user in root daemon; do
  ! as "$user" ls "$mnt" > "$work/ls.log" 2>&1 || fail "$user is let in"
  grep -q 'Permission denied' "$work/ls.log" ||
    { cat "$work/ls.log" >&2; fail "$user is told something else"; }
done

as nobody python3 "$work/calls.py" "$mnt" || fail "system calls"
as nobody python3 "$work/coherence.py" "$mnt" "$pando" || fail "coherence"
as nobody python3 "$work/atime.py" "$mnt" relatime || fail "times of reading"
as nobody python3 "$work/totals.py" "$mnt" "$pando" || fail "totals of directories"
as nobody python3 "$work/extents.py" "$mnt" "$pando" || fail "copies share no extents"
as nobody "$pando" gc --delete --grace 0s "$mnt" > /dev/null || fail "gc"
as nobody "$pando" fsck "$mnt" > "$work/fsck.log" 2>&1 ||
  { cat "$work/fsck.log" >&2; fail "fsck of the mounted volume"; }

# The owner dies, and the user mounts again without root's help.
as nobody sha256sum "$mnt/kept" > "$work/sum"
as nobody "$pando" sync "$mnt" > /dev/null
pid=$(as nobody "$pando" status --json "$volume" | tr ',{}' '\n\n\n' |
  sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
[ "$(stat -c %U "/proc/$pid")" = nobody ] || fail "the owner is not the user's"
as nobody kill -9 "$pid"
as nobody "$fusermount" -u -z "$mnt"
as nobody "$pando" mount "$volume" "$mnt" > /dev/null
as nobody sha256sum --quiet -c "$work/sum" || fail "what was synced is not there"
as nobody "$pando" umount "$mnt" > /dev/null
! findmnt "$mnt" > /dev/null || fail "it is mounted still"
as nobody "$pando" fsck "$volume" > "$work/fsck.log" 2>&1 ||
  { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
strangers=$(find "$volume" ! -user nobody | head -3)
[ -z "$strangers" ] || fail "files of the volume are not the user's: $strangers"
echo "$suite: an ordinary user's mount does the same, and lets nobody else in"
