# Sourced by nfs-clients.sh and nfs-export.sh: Debian's user-mode-linux, a kernel that is a program, with
# NFS and FUSE. It needs no root, and mounts nothing outside. Packages are fetched by apt-get into
# target/tools/nfs (44 MB), and not installed.
#   PANDO=path         the program; otherwise target/release/pando
#   SECONDS_MAX=2400   the kernel is ended after that time
#   SKIP_NFS=REASON    where packages cannot be fetched: the script reports NOT TESTED, and succeeds
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
suite=$(basename "$0" .sh)
pando=$(realpath "${PANDO:-$root/target/release/pando}")
tools=$root/target/tools/nfs
packages="user-mode-linux nfs-kernel-server nfs-common libnfsidmap1 libtirpc3 libtirpc-common
  libevent-core-2.1-7 keyutils libwrap0 rpcbind nfs-ganesha nfs-ganesha-vfs libntirpc4.3 liburcu8
  libwbclient0"

fail() { echo "$suite: $*" >&2; exit 1; }

not_tested() {
  [ -n "${SKIP_NFS:-}" ] ||
    fail "it cannot be tested: $1. Repair that, or give the reason: SKIP_NFS='the reason'"
  echo "NOT TESTED: $suite ($1; SKIP_NFS: $SKIP_NFS)"
  exit 0
}

fetch_packages() {
  [ "$(cat "$tools/fetched" 2>/dev/null)" != "$packages" ] || return 0
  command -v apt-get >/dev/null || not_tested "it takes Debian's packages, and there is no apt-get"
  rm -rf "$tools/root" "$tools/packages"
  mkdir -p "$tools/packages"
  # shellcheck disable=SC2086
  (cd "$tools/packages" && apt-get -qq download $packages) ||
    not_tested "apt-get cannot fetch Debian's packages (of Debian 12; after apt-get update)"
  for package in "$tools"/packages/*.deb; do
    dpkg -x "$package" "$tools/root"
  done
  rm -rf "$tools/packages"
  echo "$packages" > "$tools/fetched"
}

# run_guest PART: runs that part of guest.sh in the other kernel; it must print that all passed.
run_guest() {
  [ -x "$pando" ] || fail "no program $pando: make build, or set PANDO"
  fetch_packages
  work=$(mktemp -d "${TMPDIR:-/tmp}/pando-nfs.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  # The guest has a /tmp of its own, and programs are built again meanwhile.
  cp "$pando" "$tools/pando-$suite"
  # The guest sees the files of this machine read-only, and writes to memory alone.
  TMPDIR=$work timeout -k 10 "${SECONDS_MAX:-2400}" "$tools/root/usr/bin/linux.uml" mem=1500M \
    root=/dev/root rootfstype=hostfs ro quiet con=null con0=null,fd:1 \
    init="$root/scripts/nfs/guest.sh" PART="$1" TOOLS="$tools/root" PANDO="$tools/pando-$suite" \
    HERE="$root/scripts/nfs" < /dev/null 2>&1 | sed -u 's/\r//' | tee "$work/out"
  rm -f "$tools/pando-$suite"
  grep -q "^$1: all passed\$" "$work/out" || fail "failed"
}
