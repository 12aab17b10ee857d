#!/usr/bin/env bash
# Calls that must have the same result as on ext4, one by one (beside.py): renames that leave a
# whiteout, set-id bits and file capabilities after changes of contents, times of last reading.
#   scripts/posix/beside.sh
. "$(dirname "$0")/lib.sh"
skip_without_mounts
mount_pando suid,dev
mount_ext4 64
for place in mnt ext4; do
  mkdir "${!place}/beside"
  python3 scripts/posix/beside.py "${!place}/beside" > "$work/$place.list" || fail "the calls do not end on $place"
done
lines=$(wc -l < "$work/ext4.list")
[ "$lines" -ge 100 ] || fail "only $lines lines"
diff "$work/ext4.list" "$work/mnt.list" > "$work/diff" || { cat "$work/diff" >&2; fail "not as on ext4 (<)"; }
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 || { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
echo "beside: $lines lines as on ext4"
