#!/bin/sh
# Compares bulk operations with tar and cp on the file system of TMPDIR, both sides ending in a sync,
# warm and with caches dropped: one JSON line a comparison, with its ratio and its bar.
#
#   bench/bulk.sh [FILES] [PANDO] [ENGINE] [NAMES] [SECONDS]
#       FILES: 70000; PANDO: target/release/pando; ENGINE: btree; NAMES: 1000000; SECONDS: 25
#
# The tree of FILES is like a kernel's: 15 files a directory, of 0 to 64 KiB, mostly small. NAMES are
# without contents, for streams and dumps. The commands of a comparison run in turns, up to three times
# each: no further round begins after SECONDS. `ratio` is of the least times; least, median and most are
# of seconds. `processor` is the time of both sides' processes, the daemon's included. Before a cold run
# the daemon is ended and the page cache dropped. That needs root: others get no cold rows. What runs is
# printed to standard error. Each run waits until the file system of TMPDIR has written what other
# programs gave it, so on a busy disk the script takes much longer than what it measures.
set -eu

pando=$(realpath "${2:-target/release/pando}")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-bulk.XXXXXX")
end() {
    "$pando" umount "$work/vol" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
PANDO_IDLE_SECONDS=600 python3 "$here/bulk_rows.py" "$work" "$pando" --files "${1:-70000}" \
    --engine "${3:-btree}" --names "${4:-1000000}" --seconds "${5:-25}"
