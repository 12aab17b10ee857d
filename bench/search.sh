#!/usr/bin/env bash
# Search: query sets 1 to 3 of the paper, exact names and substrings, on our index (all in memory, with
# the usual budget and that of the paper, cold, and with little memory for the whole process), then what others
# take for the like. One JSON object a line.
#   bench/search.sh [SCRATCH]   FILES=8000000   PROFILE=home   PEERS=1000000   MEMORY=400M   ENGINE=btree
# The paper's budget is ten bytes a file (20 MB at 2 million, 40 at 4, 80 at 8). OTHERS=0 leaves the others out.
# SQLite gets FILES files, plocate a database of their paths; PEERS of them are made as a real tree for find, fd and
# bfs (0: none). The curves of what this prints: bench/search_cdf.py.
set -eu
cd "$(dirname "$0")/.."
bench=${BENCH:-$PWD/target/release/pando-bench}
work=$(mktemp -d "${1:-${TMPDIR:-/var/tmp}}/pando-search.XXXXXX")
files=${FILES:-8000000} profile=${PROFILE:-home} peers=${PEERS:-1000000} memory=${MEMORY:-400M}
engine=${ENGINE:-btree}
group=
cleanup() {
  [ -z "$group" ] || rmdir "$group" 2>/dev/null || true
  rm -rf "$work"
}
trap cleanup EXIT
search() {
  "$bench" search --json --engine "$engine" --files "$files" --profile "$profile" --volume "$work/v" "$@"
}

search --index-cache 4G
# The budget that an owner has by default.
search --index-cache 256M
search
search --cold --queries 100

# The memory of the whole process, where control groups may be made (either version).
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  group=/sys/fs/cgroup/pando-search-$$ limit=memory.max
else
  group=/sys/fs/cgroup/memory/pando-search-$$ limit=memory.limit_in_bytes
fi
if mkdir "$group" 2>/dev/null && echo "$memory" >"$group/$limit" 2>/dev/null; then
  (echo $BASHPID >"$group/cgroup.procs" && search --cache-size 64M) |
    sed "s/^{/{\"process_limit\":\"$memory\",/"
else
  group=
  echo "no control group for memory can be made: that run is left out" >&2
fi

[ "${OTHERS:-1}" != 0 ] || exit 0
"$bench" search --files "$files" --profile "$profile" --list "$work/all"
python3 bench/search_peers.py sqlite "$work/all" "$work"
PANDO_IDLE_SECONDS=3 python3 bench/search_peers.py commands "$work/all" "$work" "$work/v"
rm -f "$work/all"
if [ "$peers" -gt 0 ]; then
  "$bench" search --files "$peers" --profile "$profile" --list "$work/some"
  "$bench" search --json --engine "$engine" --files "$peers" --profile "$profile" --volume "$work/w" \
    --index-cache 4G
  FTS=1 python3 bench/search_peers.py sqlite "$work/some" "$work"
  python3 bench/search_peers.py tree "$work/some" "$work"
fi
