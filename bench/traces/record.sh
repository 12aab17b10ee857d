#!/bin/bash
# Records the traces of this directory again: a volume is mounted so that the kernel sends every call,
# a load runs in it, and the names of the trace are replaced (extensions stay).
#
#   bench/traces/record.sh OUT [PANDO] [LOAD...]   PANDO: target/release/pando; LOAD: all of them
#
# Loads: c-build (configure and make -j2 of zlib, from the repository or URL in PANDO_ZLIB),
# rust-build (cargo build of a crate of this repository with its dependencies), git (clone, checkout
# and gc of the last commits of this repository), npm (an install from a cache), maildir (dovecot
# serves five clients by IMAP), loader (two epochs of a training loader with two workers over 600 files).
# Needs root, gcc, make, cargo, git, npm, dovecot (imapd) and python3; before c-build, npm and
# rust-build the network, unless zlib, npm's cache and cargo's registry are there.
set -eu

out=$(realpath "$1")
pando=$(realpath "${2:-target/release/pando}")
here=$(dirname "$(realpath "$0")")
if [ $# -ge 3 ]; then shift 2; else set -- c-build rust-build git npm maildir loader; fi
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-record.XXXXXX")
end() {
    "$pando" umount "$work/mnt" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
# The user of the mail server is another one.
chmod 755 "$work"
mkdir "$work/mnt"
options=attr-timeout=0,entry-timeout=0,negative-timeout=0,trace_opens

for load in "$@"; do
    rm -rf "$work/volume" "$work/trace"
    "$pando" --quiet format "$work/volume" >/dev/null
    # What is there before is not recorded.
    "$pando" mount "$work/volume" "$work/mnt" >/dev/null
    python3 "$here/loads.py" "$load" prepare "$work/mnt"
    "$pando" umount "$work/mnt" >/dev/null
    "$pando" mount --trace "$work/trace" -o "$options" "$work/volume" "$work/mnt" >/dev/null
    PANDO_CACHE="${TMPDIR:-/tmp}" TMPDIR="$work/mnt" python3 "$here/loads.py" "$load" run "$work/mnt"
    "$pando" umount "$work/mnt" >/dev/null
    rm -f "$out/$load.trace"
    "$pando" trace anonymise --keep-extensions "$work/trace" "$out/$load.trace"
    "$pando" trace info "$out/$load.trace"
    ls -l "$out/$load.trace"
done
