#!/bin/bash
# Replays traces on ext4, XFS, btrfs and on volumes of both engines: one JSON line a run.
#
#   bench/traces.sh [PANDO] [RUNS] [TRACE...]
#   PANDO: target/release/pando; RUNS: 3; TRACE: bench/traces/*.trace
#
# Each file system is new for every run, in an image of 4 GiB on the same disk (a loop device; volumes
# are directories on an ext4 image of that size). A run prepares the tree, syncs, replays as fast as
# possible, and syncs; `seconds` is the replay, `sync_seconds` the sync behind it. The order of the
# file systems turns with each run. XFS and btrfs are left out where mkfs.xfs or mkfs.btrfs is missing.
# THREADS (1) is the number of replaying threads. Needs root.
set -eu

pando=$(realpath "${1:-target/release/pando}")
runs=${2:-3}
if [ $# -ge 3 ]; then shift 2; else set -- bench/traces/*.trace; fi
threads=${THREADS:-1}
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-traces.XXXXXX")
end() {
    "$pando" umount "$work/mnt" >/dev/null 2>&1 || true
    umount "$work/mnt" 2>/dev/null || true
    umount "$work/disk" 2>/dev/null || true
    rm -rf "$work"
}
trap end EXIT
mkdir "$work/mnt" "$work/disk"

image() { # KIND MOUNT_POINT
    rm -f "$work/image"
    truncate -s 4G "$work/image"
    case $1 in
    ext4) mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$work/image" ;;
    *) "mkfs.$1" -q -f "$work/image" >/dev/null ;;
    esac
    mount -o loop "$work/image" "$2"
}

run() { # TRACE KIND NUMBER
    case $2 in
    pando-*)
        image ext4 "$work/disk"
        "$pando" --quiet format --engine "${2#pando-}" "$work/disk/volume" >/dev/null
        "$pando" mount "$work/disk/volume" "$work/mnt" >/dev/null
        ;;
    *) image "$2" "$work/mnt" ;;
    esac
    "$pando" --json --quiet replay --prepare --threads "$threads" "$1" "$work/mnt/replay" >"$work/report"
    synced=$( { time -p sync -f "$work/mnt"; } 2>&1 | sed -n 's/^real //p')
    python3 - "$work/report" "$1" "$2" "$3" "$synced" <<'END'
import json, os, sys
report, trace, kind, number, synced = sys.argv[1:]
prepared, ran = [json.loads(line) for line in open(report)]
p99 = {call: round(of["p99_us"], 1) for call, of in ran["by_call"].items()}
p50 = {call: round(of["p50_us"], 1) for call, of in ran["by_call"].items()}
print(json.dumps({"bench": "traces", "trace": os.path.basename(trace), "on": kind, "run": int(number),
                  "threads": ran["threads"], "calls": ran["calls"], "seconds": round(ran["seconds"], 3),
                  "sync_seconds": float(synced), "per_second": round(ran["per_second"]),
                  "prepared": prepared["prepared"], "failed": ran["differences"]["failed"],
                  "succeeded": ran["differences"]["succeeded"],
                  "other_error": ran["differences"]["other_error"], "p50_us": p50, "p99_us": p99}))
END
    case $2 in
    pando-*) "$pando" umount "$work/mnt" >/dev/null; umount "$work/disk" ;;
    *) umount "$work/mnt" ;;
    esac
}

kinds="ext4 pando-btree pando-lsm"
for kind in xfs btrfs; do
    if command -v "mkfs.$kind" >/dev/null; then kinds="$kinds $kind"; fi
done
for trace in "$@"; do
    number=1
    while [ "$number" -le "$runs" ]; do
        for kind in $kinds; do
            run "$trace" "$kind" "$number"
        done
        # The next run begins with another file system.
        # shellcheck disable=SC2086
        set_kinds() { shift_first=$1; shift; kinds="$* $shift_first"; }
        set_kinds $kinds
        number=$((number + 1))
    done
done
