#!/usr/bin/env bash
# An etcd of one member for tests, on the loopback interface (Debian's package etcd-server).
#     scripts/etcd.sh path                prints where the program is, or fails
#     scripts/etcd.sh start DIR PORT      keeps its data in DIR; prints the address once it answers
#     scripts/etcd.sh stop DIR            ends that one
# PORT + 1 is the port of the member for other members. ETCD_OPTIONS has further options. With
# ETCD_SCHEME=https, for which these name certificates, PORT + 2 answers whether it is healthy.
# LISTEN=ADDRESS: it answers clients there (an address of a network namespace; it asks no password).
set -eu

usage() {
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

path() {
  command -v etcd
}

start() {
  directory=$1 port=$2
  command=$(path) || { echo "etcd: not installed: apt-get install etcd-server" >&2; exit 1; }
  mkdir -p "$directory"
  scheme=${ETCD_SCHEME:-http} health=$port more= address=${LISTEN:-127.0.0.1}
  if [ "$scheme" = https ]; then
    health=$((port + 2)) more="--listen-metrics-urls http://$address:$((port + 2))"
  fi
  url=$scheme://$address:$port peer=http://127.0.0.1:$((port + 1))
  # Its answers are what tests wait for: no sync would be faster, and not what is run elsewhere.
  # shellcheck disable=SC2086
  ETCD_UNSUPPORTED_ARCH=$(uname -m) nohup "$command" --name test --data-dir "$directory/data" \
    --listen-client-urls "$url" --advertise-client-urls "$url" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
    --initial-cluster "test=$peer" $more ${ETCD_OPTIONS:-} > "$directory/log" 2>&1 &
  echo $! > "$directory/pid"
  for _ in $(seq 200); do
    if ! kill -0 "$(cat "$directory/pid")" 2>/dev/null; then
      echo "etcd: it ended: $(tail -n 3 "$directory/log")" >&2
      exit 1
    fi
    if answers "$health"; then
      echo "$url"
      return
    fi
    sleep 0.1
  done
  echo "etcd: it does not answer on port $port: $(tail -n 3 "$directory/log")" >&2
  kill "$(cat "$directory/pid")"
  exit 1
}

# Whether it is healthy: it listens before it can answer.
answers() {
  { exec 3<> "/dev/tcp/$address/$1"; } 2>/dev/null || return 1
  printf 'GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3 2>/dev/null || return 1
  grep -q '"health":"true"' <&3 2>/dev/null
}

case "${1:-} $#" in
  "path 1") path ;;
  "start 3") start "$2" "$3" ;;
  "stop 2")
    kill "$(cat "$2/pid")" 2>/dev/null || true
    rm -f "$2/pid"
    ;;
  *) usage ;;
esac
