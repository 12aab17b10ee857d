#!/usr/bin/env bash
# `pando gc --delete` and `pando fsck` in a loop on a mount where four writers work, two of them as
# an ordinary user: files written, mapped, truncated, renamed, linked, copied by shared extents,
# held without a name and removed, snapshots and clones made and dropped (under_load.py). Every byte
# must read as it was written, no check may find anything, and everything must be there after the
# next mount. Before each round the daemon is killed amid a large write: what that leaves must be
# freed.
#   scripts/posix/under_load.sh [ROUNDS [SEED [CALLS]]]    2 rounds, 1, 400 calls of each writer
. "$(dirname "$0")/lib.sh"
skip_without_mounts
rounds=${1:-2}
seed=${2:-1}
calls=${3:-400}
load=$PWD/scripts/posix/under_load.py
setpriv --reuid nobody --regid nogroup --clear-groups test -x "$pando" || {
  cp "$pando" "$work/pando"
  pando=$work/pando
}

# garbage: what a daemon had written when it was killed, and no record names
garbage() {
  local pid
  dd if=/dev/urandom of="$mnt/killed" bs=1M count=500 status=none 2> /dev/null &
  local writer=$!
  for _ in $(seq 1200); do
    [ "$(du -sk "$volume/data" | cut -f1)" -lt $((data + 20000)) ] || break
    sleep 0.05
  done
  pid=$("$pando" status --json "$volume" | tr ',{}' '\n\n\n' |
    sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
  kill -9 "$pid"
  { wait "$writer" || true; } 2> /dev/null
  umount -l "$mnt"
  mount_pando suid,dev
  rm -f "$mnt/killed"
  "$pando" gc --json "$mnt" | grep -q '"garbage":' || fail "a killed writer left nothing that gc finds"
}

mount_pando suid,dev
echo "$suite: $rounds rounds from seed $seed on, $calls calls of each writer"
for round in $(seq "$rounds"); do
  directory=$mnt/round$round
  mkdir "$directory"
  "$pando" sync "$mnt" > /dev/null
  data=$(du -sk "$volume/data" | cut -f1)
  garbage
  python3 "$load" run "$directory" "$pando" $((seed + round - 1)) "$calls" \
    "$work/manifest$round" || fail "round $round, seed $((seed + round - 1))"
  sync -f "$mnt"
  echo 3 > /proc/sys/vm/drop_caches
  python3 "$load" verify "$directory" "$work/manifest$round" ||
    fail "round $round, before it is unmounted"
  "$pando" umount "$mnt" > /dev/null
  "$pando" fsck "$volume" > "$work/fsck.log" 2>&1 ||
    { cat "$work/fsck.log" >&2; fail "round $round: the volume is not well"; }
  mount_pando suid,dev
  python3 "$load" verify "$directory" "$work/manifest$round" || fail "round $round, mounted again"
  # What the previous round left has been through this one too; it is reclaimed during the next.
  last=$mnt/round$((round - 1))
  [ ! -e "$last" ] || {
    python3 "$load" verify "$last" "$work/manifest$((round - 1))" ||
      fail "round $round: the one before"
    "$pando" rmr "$last" > /dev/null
  }
done
"$pando" umount "$mnt" > /dev/null
"$pando" fsck "$volume" > "$work/fsck.log" 2>&1 ||
  { cat "$work/fsck.log" >&2; fail "the volume is not well"; }
