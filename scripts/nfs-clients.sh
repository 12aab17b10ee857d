#!/usr/bin/env bash
# Two NFS clients of one export that hold a volume `file:///...`: what is refused, races for a name,
# claims, a take-over under load, a crash. Each client is a mount of its own without a shared cache,
# with a host name and a host directory of its own. The kernel that this runs in is Debian's
# user-mode-linux, so neither NFS in the kernel nor root is needed, and nothing outside is mounted.
#     scripts/nfs-clients.sh           some minutes; PANDO names the program
# Packages are fetched into target/tools/nfs by apt-get, and not installed.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
pando=$(realpath "${PANDO:-$root/target/release/pando}")
tools=$root/target/tools/nfs
packages="user-mode-linux nfs-kernel-server nfs-common libnfsidmap1 libtirpc3 libtirpc-common
  libevent-core-2.1-7 keyutils libwrap0"

[ -x "$pando" ] || { echo "nfs-clients: no program $pando: make build, or set PANDO" >&2; exit 1; }
if [ ! -x "$tools/root/usr/bin/linux.uml" ]; then
  command -v apt-get >/dev/null || { echo "NOT TESTED: NFS (Debian's user-mode-linux)" >&2; exit 1; }
  mkdir -p "$tools/packages"
  # shellcheck disable=SC2086
  (cd "$tools/packages" && apt-get -qq download $packages)
  for package in "$tools"/packages/*.deb; do
    dpkg -x "$package" "$tools/root"
  done
  rm -rf "$tools/packages"
fi

# The guest has a /tmp of its own, and programs are built again meanwhile.
cp "$pando" "$tools/pando"
work=$(mktemp -d "${TMPDIR:-/tmp}/pando-nfs.XXXXXX")
trap 'rm -rf "$work"' EXIT
# The guest sees the files of this machine read-only, and writes to memory alone.
TMPDIR=$work timeout -k 10 "${SECONDS_MAX:-1500}" "$tools/root/usr/bin/linux.uml" mem=1500M \
  root=/dev/root rootfstype=hostfs ro quiet con=null con0=null,fd:1 \
  init="$root/scripts/nfs/guest.sh" TOOLS="$tools/root" PANDO="$tools/pando" HERE="$root/scripts/nfs" \
  < /dev/null 2>&1 | sed -u 's/\r//' | tee "$work/out"
grep -q '^nfs-clients: all passed$' "$work/out" || { echo "nfs-clients: failed" >&2; exit 1; }
