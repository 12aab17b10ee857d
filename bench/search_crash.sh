#!/usr/bin/env bash
# A crash with many scattered changes that no base of the index has: CHANGES random files are changed
# through a mount, the daemon is killed, and the volume is opened and asked: with an empty page cache,
# and by a new daemon once more with a full one. One JSON object; what it is at goes to standard error.
# KIND=modes changes their modes alone. KIND=all makes changes of all kinds (search_changes.py), among
# them names, links, directories, snapshots, roll-backs and clones; at the end it mounts the volume
# again, and fails unless `pando find` and a walk by `find` agree on all that is there; COMPARE=0
# leaves that out, which takes half an hour with 8 million files.
# VOLDIR is a volume that `pando-bench search --volume VOLDIR` left, or is made with FILES files on
# ENGINE. It stays, changed. As root; drops caches. With 1 million files and 200,000 changes it takes
# some two minutes.
#   bench/search_crash.sh VOLDIR [MOUNTPOINT]      CHANGES=1000000 FILES=1000000 KIND=modes ENGINE=btree
set -eu
cd "$(dirname "$0")/.."
pando=$(realpath "${PANDO:-$PWD/target/release/pando}") bench=${BENCH:-$PWD/target/release/pando-bench}
volume=$(realpath -m "$1") changes=${CHANGES:-1000000} files=${FILES:-1000000}
kind=${KIND:-modes} engine=${ENGINE:-btree}
export PANDO=$pando
temporary=${TMPDIR:-/var/tmp}
mounted=${2:-$(mktemp -d "$temporary/pando-crash.XXXXXX")}
export PANDO_IDLE_SECONDS=600
list=$(mktemp "$temporary/pando-crash-list.XXXXXX")
daemon_pid() { head -n 1 "$volume/owner.lock"; }
kill_daemon() {
  local pid tries=0
  pid=$(daemon_pid)
  kill -9 "$pid"
  while kill -0 "$pid" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -le 600 ] || { echo "daemon $pid does not end" >&2; exit 1; }
    sleep 0.05
  done
}
cleanup() {
  if mountpoint -q "$mounted" || [ -n "${killed:-}" ]; then umount -l "$mounted" 2>/dev/null || true; fi
  [ -n "${2:-}" ] || rmdir "$mounted" 2>/dev/null || true
  [ -z "${opened:-}" ] || kill "$(daemon_pid)" 2>/dev/null || true
  rm -f "$list" "$list".*
}
trap 'cleanup "$@"' EXIT
seconds() { # COMMAND...: wall seconds, its output to nowhere
  local start
  start=$(date +%s%N)
  "$@" >/dev/null
  echo "scale=3; ($(date +%s%N) - $start) / 1000000000" | bc | sed 's/^\./0./'
}
# Bytes that the daemon had the disk read since it began.
read_bytes() { awk '/^read_bytes/ { print $2 }' "/proc/$(daemon_pid)/io"; }
log() { echo "$(date +%T) $*" >&2; }
ask() { "$pando" find "$volume:/" -name "$name" | grep -q .; }
change() {
  if [ "$kind" = modes ]; then
    (cd "$mounted" && xargs -0 -n 2000 -P 2 chmod 0604 <"$list")
    return
  fi
  # Two at a time, each every other file.
  local seed jobs=
  for seed in 1 2; do
    sed -z -n "$seed~2p" "$list" |
      python3 bench/search_changes.py "$mounted" "$changes" "$seed" >"$list.$seed" &
    jobs="$jobs $!"
  done
  for seed in $jobs; do wait "$seed"; done
  cat "$list".? >&2
}
# Waits until the background takes names apart no more: what a link counts changes by that.
settle() {
  until "$pando" status --json "$volume" | python3 -c '
import json, sys
background = json.load(sys.stdin)["background"]
sys.exit(any(background[work] for work in ("detached", "dropping", "prunes", "counting")))'; do
    sleep 0.2
  done
}
# Fails unless a walk and the index agree, line by line: at the third time at the latest, for the
# background may prune a clone between the two, by which names beside it count as links no more.
compare() { # EXPRESSION...
  local walked indexed format='%P %y %s %m %n %U %G %T@ %l\0'
  for _ in 1 2 3; do
    walked=$(cd "$mounted" && LC_ALL=C find . "$@" -printf "$format" | sort -z | sha256sum)
    indexed=$(cd "$mounted" && LC_ALL=C "$pando" find . "$@" -printf "$format" | sort -z | sha256sum)
    [ "$walked" != "$indexed" ] || return 0
    sleep 2
  done
  echo "find and pando find differ: $*" >&2
  exit 1
}
if [ ! -e "$volume" ]; then
  log "making $volume"
  "$bench" search --engine "$engine" --files "$files" --queries 5 --volume "$volume" >/dev/null
fi
log "mounting"
"$pando" mount "$volume" "$mounted" >&2
(cd "$mounted" && "$pando" find . -type f -print0) |
  shuf -z -n "$((changes + 1))" --random-source=<(yes) >"$list.all"
# One that stays as it is, to be requested.
name=$(tail -z -n 1 "$list.all" | tr -d '\0')
name=${name##*/}
head -z -n -1 "$list.all" >"$list"
log "changing"
changing=$(seconds change)
killed=1
kill_daemon
umount -l "$mounted"
log "syncing"
sync
echo 3 >/proc/sys/vm/drop_caches
log "opening"
opened=1
open=$(seconds "$pando" status "$volume")
open_bytes=$(read_bytes)
first=$(seconds ask)
first_bytes=$(($(read_bytes) - open_bytes))
second=$(seconds ask)
found=$("$pando" find "$volume:/" -perm 0604 -count)
# What was changed last is not durable when the daemon is killed.
if [ "$kind" = modes ]; then
  [ "$found" -le "$changes" ] && [ "$found" -gt $((changes * 9 / 10)) ] || {
    echo "$found files of $changes have the new mode" >&2
    exit 1
  }
fi
kill_daemon
open_warm=$(seconds "$pando" status "$volume")
first_warm=$(seconds ask)
totals=$(seconds "$pando" du -s "$volume:/")
if [ "$kind" != modes ] && [ "${COMPARE:-1}" != 0 ]; then
  log "comparing with a walk"
  "$pando" mount "$volume" "$mounted" >&2
  settle
  for expression in "-type d" "-type f" "-type l" "-perm 0604" "-links +1 -type f" "-uid 1003" "-size +100k" \
    "-name new-* -newermt @1600000000"; do
    set -f
    compare $expression
    set +f
  done
  "$pando" umount "$mounted" >&2
fi
log "done"
engine=$("$pando" status --json "$volume" | python3 -c 'import json, sys; print(json.load(sys.stdin)["engine"])')
echo "{\"bench\": \"search-crash\", \"engine\": \"$engine\", \"kind\": \"$kind\"," \
  "\"changes\": $changes, \"changing_seconds\": $changing," \
  "\"open_seconds\": $open, \"first_query_seconds\": $first, \"second_query_seconds\": $second," \
  "\"open_read_bytes\": $open_bytes, \"first_query_read_bytes\": $first_bytes," \
  "\"found\": $found, \"open_warm_seconds\": $open_warm," \
  "\"first_query_warm_seconds\": $first_warm, \"totals_seconds\": $totals}"
