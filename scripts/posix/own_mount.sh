#!/usr/bin/env bash
# A volume that an ordinary user formats, mounts through fusermount3, checks, kills and unmounts:
# the calls, coherence, times, totals and shared extents of programs.sh there, and that nobody else
# has access, not even root.
#   scripts/posix/own_mount.sh
# As root it becomes nobody, in a mount namespace of its own, where everybody may open /dev/fuse, as
# on most machines. An ordinary user runs it as themselves, except the check of others' access.
if [ -z "${SKIP_FUSE:-}" ] && [ "$(id -u)" -eq 0 ] && [ -z "${OWN_MOUNT_INSIDE:-}" ]; then
  exec unshare --mount env OWN_MOUNT_INSIDE=1 bash "$0" "$@"
fi
. "$(dirname "$0")/lib.sh"
[ -z "${OWN_MOUNT_INSIDE:-}" ] || leave_other_mounts
skip_without_fuse
me=nobody
if [ "$(id -u)" -eq 0 ]; then
  mknod -m 666 "$work/fuse" c 10 229
  mount --bind "$work/fuse" /dev/fuse
else
  me=$(id -un)
fi
fusermount=$(command -v fusermount3) || fail "fusermount3 is missing: run 'make setup'"
[ -u "$fusermount" ] || fail "$fusermount is not set-uid: no ordinary user can mount"
for script in calls coherence atime totals extents; do
  cp "scripts/posix/$script.py" "$work"
done
chmod a+r "$work"/*.py
install -d -o "$me" -g "$(id -gn "$me")" "$work/home" "$work/home/mnt"
# What clean_up removes.
volume=$work/home/volume mnt=$work/home/mnt

as() { # USER COMMAND...
  local user=$1
  shift
  if [ "$user" = "$(id -un)" ]; then
    env HOME="$work/home" "$@"
  else
    setpriv --reuid "$user" --regid nogroup --clear-groups env HOME="$work/home" "$@"
  fi
}
as "$me" test -x "$pando" || {
  cp "$pando" "$work/pando"
  pando=$work/pando
}
cd /

as "$me" "$pando" format ${PANDO_ENGINE:+--engine "$PANDO_ENGINE"} "$volume" > /dev/null
# Requesting a right does not give an ordinary user that right.
as "$me" "$pando" mount -o suid,dev "$volume" "$mnt" > /dev/null
# (Root has no access to what `mountpoint` inspects.)
options=,$(findmnt -no OPTIONS "$mnt"),
for option in nosuid nodev "user_id=$(id -u "$me")" default_permissions; do
  case $options in *,"$option",*) ;; *) fail "the mount is without $option: $options" ;; esac
done
case $options in *,allow_other,*) fail "others are let in" ;; esac
[ "$(as "$me" stat -c %U "$mnt")" = "$me" ] || fail "the root of the volume is not its user's"
head -c 300000 /dev/urandom | as "$me" tee "$mnt/kept" > /dev/null
others=(root daemon)
[ "$(id -u)" -eq 0 ] || others=()
for user in "${others[@]}"; do
  ! as "$user" ls "$mnt" > "$work/ls.log" 2>&1 || fail "$user is let in"
  grep -q 'Permission denied' "$work/ls.log" ||
    { cat "$work/ls.log" >&2; fail "$user gets another error"; }
done

as "$me" python3 "$work/calls.py" "$mnt" || fail "system calls"
as "$me" python3 "$work/coherence.py" "$mnt" "$pando" || fail "coherence"
as "$me" python3 "$work/atime.py" "$mnt" relatime || fail "times of reading"
as "$me" python3 "$work/totals.py" "$mnt" "$pando" || fail "totals of directories"
as "$me" python3 "$work/extents.py" "$mnt" "$pando" || fail "copies share no extents"
as "$me" "$pando" gc --delete --grace 0s "$mnt" > /dev/null || fail "gc"
as "$me" "$pando" fsck "$mnt" > "$work/fsck.log" 2>&1 ||
  { cat "$work/fsck.log" >&2; fail "fsck of the mounted volume"; }

# The daemon dies, and the user mounts again without root's help.
as "$me" sha256sum "$mnt/kept" > "$work/sum"
as "$me" "$pando" sync "$mnt" > /dev/null
pid=$(as "$me" "$pando" status --json "$volume" | tr ',{}' '\n\n\n' |
  sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
[ "$(stat -c %U "/proc/$pid")" = "$me" ] || fail "the owner is not the user's"
as "$me" kill -9 "$pid"
as "$me" "$fusermount" -u -z "$mnt"
as "$me" "$pando" mount "$volume" "$mnt" > /dev/null
as "$me" sha256sum --quiet -c "$work/sum" || fail "what was synced is not there"
as "$me" "$pando" umount "$mnt" > /dev/null
! findmnt "$mnt" > /dev/null || fail "it is mounted still"
as "$me" "$pando" fsck "$volume" > "$work/fsck.log" 2>&1 ||
  { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
strangers=$(find "$volume" ! -user "$me" | head -3)
[ -z "$strangers" ] || fail "files of the volume are not the user's: $strangers"
[ "${#others[@]}" -gt 0 ] || not_tested "$suite: whether others are let in" "it takes root" SKIP_ROOT
echo "$suite: an ordinary user's mount does the same${others:+, and lets nobody else in}"
