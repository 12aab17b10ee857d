#!/usr/bin/env bash
# Our mount beside the do-nothing in-memory file system (testing/memfs, same FUSE crate and settings)
# and the disk below both, in one run, interleaved: one line of JSON for each phase and number of
# threads. `ratio` is the median of the rounds' wall-time ratios to memfs, `extra_server_us` the median
# of the differences in server processor time for one operation.
#   bench/mount.sh [SCRATCH]      ROUNDS=9 FILES=4000 THREADS=1,4 SERVER_THREADS=2
set -eu
cd "$(dirname "$0")/.."
scratch=${1:-${TMPDIR:-/tmp}}
if [ ! -e /dev/fuse ]; then
    echo "no /dev/fuse: mounts cannot be measured here" >&2
    exit 1
fi
${CARGO:-cargo} build --quiet --release --package pando --package pando-memfs
exec target/release/mount-bench --pando target/release/pando --memfs target/release/memfs \
    --scratch "$scratch" --rounds "${ROUNDS:-9}" --files "${FILES:-4000}" \
    --threads "${THREADS:-1,4}" --server-threads "${SERVER_THREADS:-2}"
