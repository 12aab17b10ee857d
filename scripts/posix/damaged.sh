#!/usr/bin/env bash
# A volume with snapshots and clones, filled through a mount by root and by an ordinary user, is
# damaged in one place at a time (contents of a file, records, the volume's own records, superblock
# or manifest, the header, the index, the log), mounted and read by both: everything is as before,
# or refused with EIO; `pando fsck` names file and byte; then it is repaired, mounted and read again
# (damaged.py). The possible outcome of each: docs/fsck.md.
#   scripts/posix/damaged.sh [CASE...]      only these cases
. "$(dirname "$0")/lib.sh"
skip_without_mounts
script=$PWD/scripts/posix/damaged.py
mount_pando suid,dev
python3 "$script" fill "$mnt" "$pando" "$work/known" || fail "the volume is not filled"
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
cp -a --sparse=always "$volume" "$work/pristine"

python3 "$script" cases "$volume" "$work/pristine" "$pando" "$mnt" "$work/known" "$@" ||
  fail "damage has an unexpected outcome"
[ $# -eq 0 ] || exit 0

# The daemon dies, so that the log has data that is nowhere else.
rm -rf "$volume"
cp -a --sparse=always "$work/pristine" "$volume"
mount_pando suid,dev
python3 "$script" late "$mnt" "$work/late" || fail "late files"
pid=$("$pando" status --json "$volume" | tr ',{}' '\n\n\n' | sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
kill -9 "$pid"
umount -l "$mnt"
cp -a --sparse=always "$volume" "$work/crashed"
python3 "$script" log "$volume" "$work/crashed" "$pando" "$mnt" "$work/late" ||
  fail "a damaged log has an unexpected outcome"
