#!/usr/bin/env bash
# A crash with many scattered changes that no base of the index has: the modes of CHANGES random files
# are changed through a mount, the owner is killed, and the volume is opened and asked. One JSON object.
# VOLDIR is a volume that `pando bench search --volume VOLDIR` left. As root; drops caches.
#   bench/search_crash.sh VOLDIR [MOUNTPOINT]      CHANGES=1000000
set -eu
cd "$(dirname "$0")/.."
pando=${PANDO:-$PWD/target/release/pando}
volume=$(realpath "$1") changes=${CHANGES:-1000000}
mounted=${2:-$(mktemp -d "${TMPDIR:-/var/tmp}/pando-crash.XXXXXX")}
export PANDO_IDLE_SECONDS=600
list=$(mktemp "${TMPDIR:-/var/tmp}/pando-crash-list.XXXXXX")
cleanup() {
  "$pando" umount "$mounted" >/dev/null 2>&1 || umount -l "$mounted" 2>/dev/null || true
  rm -f "$list"
}
trap cleanup EXIT
seconds() { # COMMAND...: wall seconds, its output to nowhere
  local start
  start=$(date +%s%N)
  "$@" >/dev/null
  echo "scale=3; ($(date +%s%N) - $start) / 1000000000" | bc | sed 's/^\./0./'
}
"$pando" mount "$volume" "$mounted"
(cd "$mounted" && "$pando" find . -type f -print0) | shuf -z -n "$changes" --random-source=<(yes) >"$list"
changing=$(cd "$mounted" && seconds xargs -0 -n 2000 -P 2 chmod 0604 <"$list")
kill -9 "$(cat "$volume/owner.lock")"
umount -l "$mounted"
while kill -0 "$(cat "$volume/owner.lock")" 2>/dev/null; do sleep 0.05; done
sync
echo 3 >/proc/sys/vm/drop_caches
open=$(seconds "$pando" status "$volume")
first=$(seconds "$pando" find "$volume:/" -name "no-such-name")
second=$(seconds "$pando" find "$volume:/" -name "no-such-name")
found=$("$pando" find "$volume:/" -perm 0604 -count)
totals=$(seconds "$pando" du -s "$volume:/")
echo "{\"bench\": \"search-crash\", \"changes\": $changes, \"changing_seconds\": $changing," \
  "\"open_seconds\": $open, \"first_query_seconds\": $first, \"second_query_seconds\": $second," \
  "\"found\": $found, \"totals_seconds\": $totals}"
