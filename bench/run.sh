#!/usr/bin/env bash
# All benchmarks beside their yardsticks, one JSON object a line: in process, then through a mount.
#   FILES=1000000 (in process)   MOUNT_FILES=4000   ROUNDS=9
set -eu
cd "$(dirname "$0")/.."
files=${FILES:-1000000}
rounds=${ROUNDS:-9}
for workload in create-flat create-deep lookup stat list rename unlink; do
    target/release/pando-bench "$workload" --files "$files" --yardstick \
        --rounds "$rounds" --json
done
for workload in clone recover; do
    target/release/pando-bench "$workload" --files "$files" --json
done
if [ -e /dev/fuse ]; then
    FILES=${MOUNT_FILES:-4000} ROUNDS=$rounds bash bench/mount.sh
else
    echo "no /dev/fuse: mounts are not measured" >&2
fi
