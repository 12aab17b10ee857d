#!/usr/bin/env bash
# Two servers that take over from each other: etcd, an S3 server (a shared directory where none is
# installed), two servers, two mounts. Each is a machine of its own: a network namespace, with
# certificates. Where the kernel permits no namespaces, all are on the loopback interface, and nobody
# is cut off. Imports a tree, snapshots, searches; kills the server that serves in the middle of a
# copy, pauses the next one beyond its grant, isolates one from everybody, ends one in order; shows
# that nothing is lost, and prints how long programs waited.
#     scripts/cluster-demo.sh [DIR]     DIR: what is imported (1.5 MB of it; default /usr/share/doc)
# As root, for it mounts. PANDO names the program; KEEP=1 keeps its directory; SHORT=1 leaves out the
# pause and the orderly end; LOOPBACK=1 makes no namespaces.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/scripts/steps.sh"
pando=${PANDO:-$root/target/release/pando}
tree=${1:-/usr/share/doc}
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-cluster.XXXXXX")
own=pando-demo-$$
net=
declare -a pids=(0 0 0) writers=()
rows=()

fail() { echo "cluster-demo: $*" >&2; exit 1; }

# Runs a command on a machine: store, server1, server2, client1 or client2.
on() {
  local machine=$1
  shift
  if [ -n "$net" ]; then
    nsenter --net="/run/netns/$own-$machine" "$@"
  else
    "$@"
  fi
}

end() {
  code=$?
  set +e
  trap '' PIPE
  steps_last "ending servers and mounts, and removing $work"
  [ ${#writers[@]} = 0 ] || kill "${writers[@]}" 2>/dev/null
  for mount in "$work/m1" "$work/m2"; do
    mountpoint -q "$mount" 2>/dev/null && umount -l "$mount" 2>/dev/null
  done
  for number in 1 2; do
    [ "${pids[$number]}" = 0 ] || { kill -CONT "${pids[$number]}"; kill -KILL "${pids[$number]}"; wait "${pids[$number]}"; } 2>/dev/null
  done
  [ ! -e "$work/etcd/pid" ] || bash "$root/scripts/etcd.sh" stop "$work/etcd"
  [ ! -e "$work/s3/pid" ] || bash "$root/scripts/s3-server.sh" stop "$work/s3"
  for machine in client2 client1 server2 server1 store; do
    [ ! -e "/run/netns/$own-$machine" ] || ip netns delete "$own-$machine"
  done
  if [ "$code" != 0 ]; then
    tail -n 15 "$work"/log* >&2 2>/dev/null
  fi
  if [ -n "${KEEP:-}" ]; then echo "kept: $work"; else rm -rf "$work"; fi
  steps_end
}
trap end EXIT
trap 'exit 130' INT TERM

[ "$(id -u)" = 0 ] || fail "run it as root: it mounts"
[ -x "$pando" ] || fail "no program $pando: make build, or set PANDO"
[ -d "$tree" ] || fail "$tree is not a directory"
mkdir -p "$work/m1" "$work/m2" "$work/hosts" "$work/certs"

# Machines with one switch, which is in the namespace of the store. No address or name of this
# machine is used, and nobody outside reaches them.
machines() {
  local number=1
  for machine in store server1 server2 client1 client2; do
    ip netns add "$own-$machine" || return 1
    ip -n "$own-$machine" link set lo up || return 1
  done
  ip -n "$own-store" link add switch type bridge || return 1
  ip -n "$own-store" address add 10.0.0.1/24 dev switch || return 1
  ip -n "$own-store" link set switch up || return 1
  for machine in server1 server2 client1 client2; do
    number=$((number + 1))
    ip -n "$own-store" link add "$machine" type veth peer name eth0 netns "$own-$machine" || return 1
    ip -n "$own-store" link set "$machine" master switch up || return 1
    ip -n "$own-$machine" address add "10.0.0.$number/24" dev eth0 || return 1
    ip -n "$own-$machine" link set eth0 up || return 1
  done
}

# Free ports of the loopback interface; machines of their own have all ports.
free_ports() {
  python3 - <<'PYTHON'
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
ports = [each.getsockname()[1] for each in held]
# A member of etcd listens on the next port, too.
etcd = next(p for p in ports if p + 1 not in ports and p < 65535)
print(etcd, *[p for p in ports if p not in (etcd, etcd + 1)][:3])
PYTHON
}

secured=()
if [ -z "${LOOPBACK:-}" ] && command -v ip >/dev/null && machines 2> "$work/namespaces"; then
  net=yes store=10.0.0.1 etcd_port=2379 s3_port=7070
  address=(- 10.0.0.2:7440 10.0.0.3:7440)
  step "five machines, each a network namespace: store, server1, server2, client1, client2"
  "$pando" cluster certs "$work/certs" --server 10.0.0.2 --server 10.0.0.3 > /dev/null
  "$pando" cluster certs "$work/certs" --client client --keep-root > /dev/null 2>&1
  secured=(--cert "$work/certs/server.pem" --key "$work/certs/server.key" --ca "$work/certs/ca.pem")
  export PANDO_CERTS=$work/certs
else
  read -r etcd_port s3_port port1 port2 <<< "$(free_ports)"
  store=127.0.0.1 address=(- "127.0.0.1:$port1" "127.0.0.1:$port2")
  step "all on the loopback interface: no network namespaces${LOOPBACK:+ (LOOPBACK)}"
  [ ! -s "$work/namespaces" ] || head -n 1 "$work/namespaces"
fi
export LISTEN=$store

step "etcd, and an object store"
etcd=$(on store bash "$root/scripts/etcd.sh" start "$work/etcd" "$etcd_port")
if bash "$root/scripts/s3-server.sh" path >/dev/null 2>&1; then
  export AWS_ACCESS_KEY_ID=demo AWS_SECRET_ACCESS_KEY=demosecret AWS_REGION=us-east-1
  AWS_ENDPOINT_URL=$(on store bash "$root/scripts/s3-server.sh" start "$work/s3" "$s3_port")
  export AWS_ENDPOINT_URL
  bash "$root/scripts/s3-server.sh" bucket "$work/s3" demo
  volume=s3://demo/volume
else
  mkdir "$work/shared"
  volume=file://$work/shared
fi
echo "$etcd, $volume${AWS_ENDPOINT_URL:+ at $AWS_ENDPOINT_URL}"
PANDO_HOST_DIRECTORY=$work/hosts/0 on server1 "$pando" format "$volume"

# Starts a server, with a directory of its own, as on a machine of its own. A function in the
# background is a shell: it becomes the server, so that signals reach that.
serve() {
  : > "$work/out$1"
  (
    export PANDO_HOST_DIRECTORY=$work/hosts/$1 PANDO_LOG=info
    enter=()
    [ -z "$net" ] || enter=(nsenter --net="/run/netns/$own-server$1")
    exec "${enter[@]}" "$pando" serve "vol=$volume" --json --etcd "$etcd" --name "server$1" \
      --listen "${address[$1]}" "${secured[@]}" > "$work/out$1" 2>> "$work/log$1"
  ) &
  pids[$1]=$!
}

# Waits until the last state of a server is this one.
await() {
  for _ in $(seq 900); do
    if tail -n 1 "$work/out$1" | grep -q "\"state\":\"$2\""; then return; fi
    kill -0 "${pids[$1]}" 2>/dev/null || fail "server$1 ended"
    sleep 0.1
  done
  fail "server$1 is not $2 within 90 s"
}

step "two servers and two mounts"
serve 1; await 1 serving
serve 2; await 2 standby
url=pando://${address[1]},${address[2]}/vol
on client1 "$pando" mount "$url" "$work/m1"
on client2 "$pando" mount "$url" "$work/m2"
echo "$url, on client1 and client2"

step "an import of $tree by client1, a snapshot; and a search by client2"
mkdir "$work/tree"
# Ended by `head`, in the middle of a file.
tar -C "$tree" -cf - . 2>/dev/null | head -c 1500000 > "$work/tree.tar" || true
tar -C "$work/tree" -xf "$work/tree.tar" --no-same-owner 2>/dev/null || true
on client1 "$pando" import "$work/tree" "$url/first" > /dev/null
diff -rq --no-dereference "$work/tree" "$work/m2/first" || fail "the import differs"
on client1 "$pando" snapshot create "$url/first" monday
files=$(find "$work/m2/first" -type f | wc -l)
found=$(on client2 "$pando" find "$url/first" -type f | wc -l)
[ "$files" -gt 0 ] || fail "$tree has no file that fits"
[ "$files" = "$found" ] || fail "the search finds $found files, the mount shows $files"
echo "$files files are there; pando find finds as many"

# Appends numbered lines to a file until the file `stop` is there, and notes the longest wait.
write_lines() {
  rm -f "$work/stop"
  python3 - "$1" "$2" "$work/stop" <<'PYTHON' &
import os, sys, time
path, note, stop = sys.argv[1:]
out = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
count, longest = 0, 0.0
while not os.path.exists(stop):
    before = time.monotonic()
    os.write(out, b"%d\n" % count)
    longest = max(longest, time.monotonic() - before)
    count += 1
    time.sleep(0.01)
open(note, "w").write("%d %.1f\n" % (count, longest))
PYTHON
  writers=($!)
}

# Ends the writer; every line is there once, in order, through the other mount.
check_lines() {
  sleep 1
  touch "$work/stop"
  wait "${writers[0]}" || fail "a program got an error: $3"
  writers=()
  read -r count waited < "$2"
  [ "$(wc -l < "$1")" = "$count" ] || fail "$1 has $(wc -l < "$1") lines of $count"
  seq 0 $((count - 1)) | cmp -s - "$1" || fail "$1 is not what was written"
  rows+=("$3|$count|$waited s")
  echo "$count changes, the longest wait was $waited s; all are there, once and in order"
}

step "kill -9 of server1, which serves, in the middle of a copy"
write_lines "$work/m2/lines1" "$work/note1"
cp -a "$work/m1/first" "$work/m1/second" &
copy=$!
sleep 1
kill -KILL "${pids[1]}"; wait "${pids[1]}" 2>/dev/null || true
await 2 serving
wait "$copy" || fail "the copy got an error"
diff -rq --no-dereference "$work/tree" "$work/m2/second" || fail "the copy differs"
check_lines "$work/m1/lines1" "$work/note1" "kill -9"
serve 1; await 1 standby
serving=2 other=1

if [ -z "${SHORT:-}" ]; then
  step "server2 is paused beyond its grant, and continues"
  write_lines "$work/m1/lines2" "$work/note2"
  sleep 2
  kill -STOP "${pids[2]}"
  await 1 serving
  kill -CONT "${pids[2]}"
  await 2 standby
  check_lines "$work/m2/lines2" "$work/note2" "SIGSTOP, SIGCONT"
  serving=1 other=2
fi

if [ -n "$net" ]; then
  step "the cable of server$serving is pulled, and put back"
  write_lines "$work/m1/lines3" "$work/note3"
  sleep 2
  ip -n "$own-store" link set "server$serving" down
  await $other serving
  ip -n "$own-store" link set "server$serving" up
  await $serving standby
  check_lines "$work/m2/lines3" "$work/note3" "no network"
  was=$serving serving=$other other=$was
fi

if [ -z "${SHORT:-}" ]; then
  step "an orderly end of server$serving"
  write_lines "$work/m2/lines4" "$work/note4"
  sleep 4
  kill -TERM "${pids[$serving]}"; wait "${pids[$serving]}" || true
  pids[$serving]=0
  await $other serving
  check_lines "$work/m1/lines4" "$work/note4" "SIGTERM"
fi

step "all of it is there: every line once, in order; import and copy equal; the snapshot"
diff -rq --no-dereference "$work/tree" "$work/m1/first/.snapshots/monday" || fail "the snapshot differs"
printf '%-18s %-8s %s\n' "what happened" "changes" "longest wait"
for row in "${rows[@]}"; do
  IFS='|' read -r what count waited <<< "$row"
  printf '%-18s %-8s %s\n' "$what" "$count" "$waited"
done
"$pando" umount "$work/m1"
"$pando" umount "$work/m2"
steps_end
