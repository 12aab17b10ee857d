#!/usr/bin/env bash
# Installs what the build, the tests and the demo need from the system, and skips what is installed.
# With `counts`, also valgrind. With `test`, also the packages that `make test` needs: valgrind, stress-ng, restic, borg, etcd, bsdtar, zsh, fish. With
# `suites`, also what it builds into target/tools: suites and an S3 server. With `outside`, also the suites and loads of others that
# `make suites-outside` runs (Go's, where Go is).
# Runs as root, or with a sudo that needs no password, through apt; otherwise lists what is missing.
set -eu
. "$(dirname "$0")/steps.sh"

missing=()
need() { command -v "$1" >/dev/null 2>&1 || missing+=("$2"); }

need cc gcc
need fusermount3 fuse3
need setfattr attr
need setpriv util-linux
need mkfs.ext4 e2fsprogs
need git git
need rsync rsync
need sqlite3 sqlite3
need setfacl acl
if [ "${1:-}" = counts ] || [ "${1:-}" = test ]; then
  need valgrind valgrind
fi
if [ "${1:-}" = test ]; then
  need zsh zsh
  need fish fish
fi
if [ "${1:-}" = test ] || [ "${1:-}" = suites ] || [ "${1:-}" = outside ]; then
  need stress-ng stress-ng
  need restic restic
  need borg borgbackup
  need etcd etcd-server
  need bsdtar libarchive-tools
fi
if [ "${1:-}" = outside ]; then
  need fio fio
  need dbench dbench
  need bonnie++ bonnie++
  # Debian keeps Python's tests in a package of their own.
  ! [ -x /usr/bin/python3 ] || /usr/bin/python3 -c 'import test.test_os' 2>/dev/null ||
    missing+=("$(/usr/bin/python3 -c 'import sys; print("libpython%d.%d-testsuite" % sys.version_info[:2])')")
fi

if ! command -v cargo >/dev/null 2>&1; then
  for directory in "$HOME/.cargo/bin" /usr/local/cargo/bin; do
    [ -x "$directory/cargo" ] && echo "cargo is in $directory, which is not on PATH: add it" >&2
  done
  echo "A Rust toolchain (cargo, rustc 1.90 or later) is missing: install it and run this again." >&2
  exit 1
fi

# The suites of POSIX behaviour, built once for this checkout: scripts/posix runs them.
suites() {
  local here tools version name
  here=$(cd "$(dirname "$0")" && pwd)
  tools=${here%/*}/target/tools
  version="suites@$(cat "$here/posix/suites.toml" "$here/posix/suites.lock" | cksum | cut -d ' ' -f 1)"
  if ! grep -qs "^$version\$" "$tools/installed"; then
    step "setup: building pjdfstest and fsx"
    mkdir -p "$tools/build" "$tools/bin"
    cp "$here/posix/suites.toml" "$tools/build/Cargo.toml"
    cp "$here/posix/suites.lock" "$tools/build/Cargo.lock"
    : > "$tools/build/empty.rs"
    (
      # Not what test.sh sets for the build of the tests.
      unset RUSTC_WORKSPACE_WRAPPER
      cd "$tools/build"
      cargo build --quiet --locked --release --package fsx --package pjdfstest --target-dir target
    )
    for name in fsx pjdfstest; do
      install "$tools/build/target/release/$name" "$tools/bin/$name"
    done
    echo "$version" >> "$tools/installed"
    steps_end
  fi
  rm -rf "$tools/build"
  # Without it the tests of object stores run on the small server that they have.
  ! command -v go >/dev/null 2>&1 || bash "$(dirname "$0")/s3-server.sh" install ||
    echo "setup: no S3 server of a third party: tests that need one report NOT TESTED" >&2
}

if [ ${#missing[@]} -eq 0 ]; then
  [ "${1:-}" != suites ] || suites
  exit 0
fi

echo "setup: missing: ${missing[*]}"
as_root=""
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as_root="sudo -n"
  else
    echo "Not root, and sudo would ask for a password. Install these packages and run this again:" >&2
    echo "    apt-get install ${missing[*]}" >&2
    exit 1
  fi
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "There is no apt-get here. Install what gives these programs: ${missing[*]}" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
step "setup: apt-get update"
$as_root apt-get update -qq
step "setup: apt-get install ${missing[*]}"
$as_root apt-get install -y -qq --no-install-recommends "${missing[@]}"
steps_end
[ "${1:-}" != suites ] || suites
