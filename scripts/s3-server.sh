#!/usr/bin/env bash
# An S3 server of a third party (versitygw) for tests, on the loopback interface.
#     scripts/s3-server.sh install             installs it into target/tools/bin (needs Go)
#     scripts/s3-server.sh path                prints where it is, or fails
#     scripts/s3-server.sh start DIR PORT      serves DIR; prints the endpoint once it answers
#     scripts/s3-server.sh bucket DIR NAME     makes a bucket in a served directory
#     scripts/s3-server.sh stop DIR            ends that server
# Keys are those of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, else `key` and `secret`. It never
# syncs what it stores: a server to test with, not to keep data on. LISTEN=ADDRESS: it listens there
# (an address of a network namespace).
set -eu
version=v1.8.0
tools=$(cd "$(dirname "$0")/.." && pwd)/target/tools
server=$tools/bin/versitygw

usage() {
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

# The installed one, else one on PATH.
path() {
  if [ -x "$server" ]; then
    echo "$server"
  else
    command -v versitygw
  fi
}

install() {
  # A binary of another version is replaced.
  if grep -qs "^versitygw@$version\$" "$tools/installed" && [ -x "$server" ]; then
    return
  fi
  if ! command -v go >/dev/null 2>&1; then
    echo "s3-server: Go is missing, so versitygw cannot be built: install Go, or put versitygw on PATH." >&2
    exit 1
  fi
  mkdir -p "$tools/bin"
  . "$(dirname "$0")/steps.sh"
  step "s3-server: building versitygw $version" >&2
  # Without C, what debuggers read, and inlining, which takes almost half of the compiler's time: what
  # waits for this server waits for the disk.
  CGO_ENABLED=0 GOBIN=$tools/bin go install -ldflags='-s -w' -gcflags='all=-dwarf=false -l' \
    "github.com/versity/versitygw/cmd/versitygw@$version"
  echo "versitygw@$version" >> "$tools/installed"
  steps_end >&2
}

start() {
  directory=$1 port=$2 address=${LISTEN:-127.0.0.1}
  command=$(path) || { echo "s3-server: versitygw is not installed: run $0 install" >&2; exit 1; }
  mkdir -p "$directory/served"
  ROOT_ACCESS_KEY=${AWS_ACCESS_KEY_ID:-key} ROOT_SECRET_KEY=${AWS_SECRET_ACCESS_KEY:-secret} \
    nohup "$command" --port "$address:$port" --quiet --keep-alive posix "$directory/served" \
    > "$directory/log" 2>&1 &
  echo $! > "$directory/pid"
  for _ in $(seq 100); do
    if ! kill -0 "$(cat "$directory/pid")" 2>/dev/null; then
      echo "s3-server: versitygw ended: $(tail -n 3 "$directory/log")" >&2
      exit 1
    fi
    if (exec 3<> "/dev/tcp/$address/$port") 2>/dev/null; then
      echo "http://$address:$port"
      return
    fi
    sleep 0.1
  done
  echo "s3-server: versitygw does not answer on port $port: $(tail -n 3 "$directory/log")" >&2
  kill "$(cat "$directory/pid")"
  exit 1
}

case "${1:-} $#" in
  "install 1") install ;;
  "path 1") path ;;
  "start 3") start "$2" "$3" ;;
  # Its back end keeps each bucket as a directory.
  "bucket 3") mkdir "$2/served/$3" ;;
  "stop 2")
    kill "$(cat "$2/pid")" 2>/dev/null || true
    rm -f "$2/pid"
    ;;
  *) usage ;;
esac
