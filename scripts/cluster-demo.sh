#!/usr/bin/env bash
# Two servers that take over from each other, on this machine: etcd, an S3 server (a shared
# directory where none is installed), two servers, two mounts. Imports a tree, snapshots, searches,
# kills the server that serves in the middle of a copy, pauses the next one beyond its grant, shows
# that nothing is lost, and prints how long programs waited.
#     scripts/cluster-demo.sh [DIR]     DIR: what is imported (default /usr/share/doc)
# As root, for it mounts. PANDO names the program; KEEP=1 keeps its directory.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
pando=${PANDO:-$root/target/release/pando}
tree=${1:-/usr/share/doc}
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-cluster.XXXXXX")
etcd_port=$((20000 + $$ % 10000)) s3_port=$((etcd_port + 2)) port=$((etcd_port + 4))
declare -a pids=(0 0 0)
rows=()

title() { printf '\n== %s\n' "$*"; }
fail() { echo "cluster-demo: $*" >&2; exit 1; }

end() {
  code=$?
  set +e
  for mount in "$work/m1" "$work/m2"; do
    mountpoint -q "$mount" 2>/dev/null && umount -l "$mount" 2>/dev/null
  done
  for number in 1 2; do
    [ "${pids[$number]}" = 0 ] || { kill -CONT "${pids[$number]}"; kill -KILL "${pids[$number]}"; wait "${pids[$number]}"; } 2>/dev/null
  done
  bash "$root/scripts/etcd.sh" stop "$work/etcd"
  [ ! -e "$work/s3/pid" ] || bash "$root/scripts/s3-server.sh" stop "$work/s3"
  if [ "$code" != 0 ]; then
    tail -n 15 "$work"/log* >&2 2>/dev/null
  fi
  if [ -n "${KEEP:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
}
trap end EXIT

[ "$(id -u)" = 0 ] || fail "run it as root: it mounts"
[ -x "$pando" ] || fail "no program $pando: make build, or set PANDO"
mkdir -p "$work/m1" "$work/m2" "$work/hosts"

title "etcd, and an object store"
bash "$root/scripts/etcd.sh" start "$work/etcd" "$etcd_port"
if bash "$root/scripts/s3-server.sh" path >/dev/null 2>&1; then
  export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demosecret AWS_REGION=us-east-1
  AWS_ENDPOINT_URL=$(bash "$root/scripts/s3-server.sh" start "$work/s3" "$s3_port")
  export AWS_ENDPOINT_URL
  bash "$root/scripts/s3-server.sh" bucket "$work/s3" demo
  volume=s3://demo/volume
else
  mkdir "$work/shared"
  volume=file://$work/shared
fi
PANDO_HOST_DIRECTORY=$work/hosts/0 "$pando" format "$volume"

# Starts a server, with a directory of its own, as on a machine of its own.
serve() {
  : > "$work/out$1"
  PANDO_HOST_DIRECTORY=$work/hosts/$1 PANDO_LOG=info "$pando" serve "vol=$volume" --json \
    --etcd "http://127.0.0.1:$etcd_port" --name "server$1" --listen "127.0.0.1:$((port + $1))" \
    > "$work/out$1" 2>> "$work/log$1" &
  pids[$1]=$!
}

# Waits until the last state of a server is this one.
await() {
  for _ in $(seq 600); do
    if tail -n 1 "$work/out$1" | grep -q "\"state\":\"$2\""; then return; fi
    sleep 0.1
  done
  fail "server$1 is not $2 within a minute"
}

title "two servers and two mounts"
serve 1; await 1 serving
serve 2; await 2 standby
url=pando://127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))/vol
"$pando" mount "$url" "$work/m1"
"$pando" mount "$url" "$work/m2"

title "a copy of $tree through one mount, a snapshot, and a search through the other"
mkdir "$work/m1/first"
tar -C "$tree" -cf - . 2>/dev/null | head -c 1500000 > "$work/tree.tar"
tar -C "$work/m1/first" -xf "$work/tree.tar" --no-same-owner 2>/dev/null || true
"$pando" snapshot create "$url/first" monday
files=$(find "$work/m2/first" -type f | wc -l)
found=$("$pando" find "$url/first" -type f | wc -l)
[ "$files" = "$found" ] || fail "the search finds $found files, the mount shows $files"
echo "$files files; pando find finds as many"

# Appends numbered lines through a mount, and notes the longest wait.
write_lines() {
  local file=$1 seconds=$2 note=$3
  python3 - "$file" "$seconds" "$note" <<'PYTHON'
import os, sys, time
path, seconds, note = sys.argv[1], float(sys.argv[2]), sys.argv[3]
out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
count, longest, end = 0, 0.0, time.monotonic() + seconds
while time.monotonic() < end:
    before = time.monotonic()
    os.write(out, b"%d\n" % count)
    longest = max(longest, time.monotonic() - before)
    count += 1
    time.sleep(0.01)
open(note, "w").write("%d %.1f\n" % (count, longest))
PYTHON
}

# Every line once, in order.
check_lines() {
  read -r count waited < "$2"
  [ "$(wc -l < "$1")" = "$count" ] || fail "$1 has $(wc -l < "$1") lines of $count"
  seq 0 $((count - 1)) | cmp -s - "$1" || fail "$1 is not what was written"
  rows+=("$3|$count|$waited s")
}

title "kill -9 of the server that serves, in the middle of a copy"
write_lines "$work/m2/lines1" 20 "$work/note1" &
writer=$!
mkdir "$work/m1/second"
(tar -C "$work/m1/second" -xf "$work/tree.tar" --no-same-owner 2>/dev/null || true) &
copy=$!
sleep 2
kill -KILL "${pids[1]}"; wait "${pids[1]}" 2>/dev/null || true
await 2 serving
wait "$copy" "$writer"
diff -rq --no-dereference "$work/m1/first" "$work/m1/second" || fail "the copy differs"
check_lines "$work/m1/lines1" "$work/note1" "kill -9"
serve 1; await 1 standby

title "the next one is paused beyond its grant, and continues"
write_lines "$work/m1/lines2" 20 "$work/note2" &
writer=$!
sleep 2
kill -STOP "${pids[2]}"
await 1 serving
kill -CONT "${pids[2]}"
await 2 standby
wait "$writer"
check_lines "$work/m2/lines2" "$work/note2" "SIGSTOP, SIGCONT"
ls "$work/m1/first/.snapshots/monday" > /dev/null || fail "the snapshot is gone"

title "an orderly end"
write_lines "$work/m2/lines3" 15 "$work/note3" &
writer=$!
sleep 2
kill -TERM "${pids[1]}"; wait "${pids[1]}" || true
pids[1]=0
await 2 serving
wait "$writer"
check_lines "$work/m1/lines3" "$work/note3" "SIGTERM"

title "all of it is there: every line once, in order; both copies equal; the snapshot"
printf '%-18s %-8s %s\n' "what happened" "changes" "longest wait"
for row in "${rows[@]}"; do
  IFS='|' read -r what count waited <<< "$row"
  printf '%-18s %-8s %s\n' "$what" "$count" "$waited"
done
"$pando" umount "$work/m1"
"$pando" umount "$work/m2"
