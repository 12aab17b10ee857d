# Sourced by the POSIX suites: a volume mounted by the binary under test, and ext4 on a loop device
# beside it, both below one temporary directory that is removed with the script.
#
#   PANDO=path         the binary; otherwise target/debug/pando, built if it is not there
#   PANDO_ENGINE=lsm   the engine of the volume; otherwise the default
#   PANDO_REMOTE=1     the volume is served, and mounted over a loopback connection
#   PANDO_VOLUME=URL   a volume in an object store, which is made there; otherwise one in a directory
#   KEEP=1             leaves volume, mounts and logs behind and prints their place
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
cargo=${CARGO:-cargo}
tools=$PWD/target/tools
pando=${PANDO:-$PWD/target/debug/pando}
suite=$(basename "$0" .sh)${PANDO_ENGINE:+-$PANDO_ENGINE}${PANDO_REMOTE:+-remote}
served=

fail() { echo "$suite: $*" >&2; exit 1; }

# not_tested WHAT WHY VARIABLE: a part that does not run is a failure, unless the variable gives a
# reason.
not_tested() {
  [ -n "${!3:-}" ] ||
    fail "$1 cannot be tested: $2. Repair that, or give the reason: $3='the reason' make test"
  echo "NOT TESTED: $1 ($2; $3: ${!3})"
}

# skip_without_fuse: ends the script if nothing can be mounted; successfully, if SKIP_FUSE has a
# reason.
skip_without_fuse() {
  [ -z "${SKIP_FUSE:-}" ] && [ -w /dev/fuse ] && return
  not_tested "$suite" "it mounts, and /dev/fuse is not used" SKIP_FUSE
  exit 0
}

# skip_without_mounts: the same, also if the caller is not root; successfully, if SKIP_ROOT has a
# reason.
skip_without_mounts() {
  skip_without_fuse
  [ "$(id -u)" -ne 0 ] || return 0
  not_tested "$suite" "it takes root: loop devices, several users" SKIP_ROOT
  exit 0
}

[ -x "$pando" ] || $cargo build --package pando --quiet

# Not called after all of $suite: paths of sockets have at most 107 bytes.
work=$(mktemp -d "${TMPDIR:-/var/tmp}/pando-${suite%-remote}.XXXXXX")
chmod 755 "$work"
volume=${PANDO_VOLUME:-$work/volume}
mnt=$work/mnt
ext4=$work/ext4
mkdir "$mnt" "$ext4"

clean_up() {
  status=$?
  trap - EXIT
  if [ "${KEEP:-}" = 1 ]; then
    echo "kept: $work (volume, mnt, ext4)"
    exit "$status"
  fi
  cd /
  umount "$ext4" 2>/dev/null || umount -l "$ext4" 2>/dev/null || true
  timeout 60 "$pando" umount "$mnt" >/dev/null 2>&1 || umount -l "$mnt" 2>/dev/null || true
  if [ -n "$served" ]; then kill "$served" 2>/dev/null && wait "$served" || true; fi
  timeout 60 "$pando" umount "$volume" >/dev/null 2>&1 || true
  mountpoint -q "$mnt" || rm -rf "$work"
  exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

# mount_pando [OPTIONS]: formats the volume if there is none, and mounts it
mount_pando() {
  [ -e "$volume" ] || "$pando" format ${PANDO_ENGINE:+--engine "$PANDO_ENGINE"} "$volume" >/dev/null
  local source=$volume
  if [ -n "${PANDO_REMOTE:-}" ]; then
    "$pando" serve --json --listen 127.0.0.1:0 "vol=$volume" > "$work/serve" 2> "$work/serve.log" &
    served=$!
    until grep -q address "$work/serve"; do
      kill -0 "$served" 2>/dev/null || fail "no server: $(tail -1 "$work/serve.log")"
      sleep 0.1
    done
    source=pando://$(sed -E 's/.*"address": ?"([^"]*)".*/\1/' "$work/serve")/vol
  fi
  "$pando" mount -o "${1:-suid,dev}" "$source" "$mnt" >/dev/null
  chmod 755 "$mnt"
}

# mount_ext4 [MIB]
mount_ext4() {
  truncate -s "${1:-1024}M" "$work/ext4.img"
  mkfs.ext4 -q -F "$work/ext4.img"
  mount -o loop "$work/ext4.img" "$ext4" || fail "no loop device for ext4"
  chmod 755 "$ext4"
}

# leave_other_mounts [MOUNT]: in a mount namespace of its own, lets go of the volumes that others
# mounted, except for this one: a copy of a mount keeps its daemon, and a suite beside this one could
# not unmount.
leave_other_mounts() {
  local at
  while read -r at; do
    [ "$at" = "${1:-}" ] || umount --lazy "$at" 2> /dev/null || true
  done < <(awk '$3 == "fuse.pando" { print $2 }' /proc/self/mounts)
}
