#!/usr/bin/env bash
# All that CI runs. Stops at the first thing that is wrong; says how many tests ran, and what did not.
# It mounts file systems of several users, for which it takes root and /dev/fuse. Where one of them
# cannot be had, a variable with the reason says so, and the rest runs:
#   SKIP_ROOT='no root here' make test     an ordinary user, who may mount through fusermount3
#   SKIP_FUSE='no FUSE here' make test     nothing is mounted
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# How long the tests may take altogether, once they are built.
LONGEST=${LONGEST:-40m}
log=$(mktemp)
suites=$(mktemp)
trap 'rm -f "$log" "$suites"' EXIT
export SKIP_ROOT=${SKIP_ROOT:-} SKIP_FUSE=${SKIP_FUSE:-}
# Empty is as if it were not there.
[ -n "$SKIP_ROOT" ] || unset SKIP_ROOT
[ -n "$SKIP_FUSE" ] || unset SKIP_FUSE

step() { printf '\n== %s\n' "$*"; }

# Asked first: to be told of it after ten minutes of building helps nobody.
if [ "$(id -u)" -ne 0 ] && [ -z "${SKIP_ROOT:-}${SKIP_FUSE:-}" ]; then
  # As for packages: where sudo asks nothing, it is used.
  if sudo -n true 2>/dev/null; then
    echo "As root, by sudo: the tests mount file systems of several users."
    code=0
    sudo -n --preserve-env env "PATH=$PATH" "HOME=$HOME" bash scripts/test.sh || code=$?
    # What was built stays the caller's.
    sudo -n chown -R "$(id -u):$(id -g)" target
    exit "$code"
  fi
  cat >&2 <<'TEXT'
The tests mount file systems of several users, and loop devices beside them: that takes root, and you are not.
Run one of
    sudo env "PATH=$PATH" make test                     everything
    SKIP_ROOT='no root on this machine' make test       what an ordinary user can; what is left out is told at the end
TEXT
  exit 1
fi
if [ ! -w /dev/fuse ] && [ -z "${SKIP_FUSE:-}" ]; then
  cat >&2 <<'TEXT'
The tests mount file systems, and /dev/fuse is not usable here.
Give this machine FUSE (`modprobe fuse`; for a container `--device /dev/fuse --cap-add SYS_ADMIN`), or say why not:
    SKIP_FUSE='no FUSE in this container' make test
TEXT
  exit 1
fi

step "formatting"
$cargo fmt --all --check

step "lints, on all targets, warnings are errors"
$cargo clippy --workspace --all-targets --quiet -- -D warnings

step "documentation, warnings are errors"
RUSTDOCFLAGS="-D warnings" $cargo doc --workspace --no-deps --document-private-items --quiet

step "tests (real mounts, crash points, faults, 20 kills of a mount)"
$cargo build --workspace --all-targets --quiet
# A test that waits for ever is a failure, and is to be told as one.
timeout --kill-after=30 "$LONGEST" $cargo test --workspace --no-fail-fast 2>&1 | tee "$log" || {
  rc=${PIPESTATUS[0]}
  [ "$rc" -ne 124 ] || echo "The tests were ended after $LONGEST: see which one has no result." >&2
  exit "$rc"
}

passed=$(awk '/^test result:/ { for (i = 1; i <= NF; i++) if ($i == "passed;") n += $(i-1) } END { print n + 0 }' "$log")
failed=$(awk '/^test result:/ { for (i = 1; i <= NF; i++) if ($i == "failed;") n += $(i-1) } END { print n + 0 }' "$log")
# suite [VARIABLE=VALUE...] SCRIPT [ARGUMENT...]: what it says that it did not test is told again at the end
suite() {
  local settings=()
  while [[ $1 == *=* ]]; do settings+=("$1") && shift; done
  local script=$1
  shift
  env "${settings[@]}" bash "scripts/posix/$script" "$@" 2>&1 | tee -a "$suites"
}
if [ "$failed" -eq 0 ]; then
  step "POSIX suites on real mounts (pjdfstest, fsx, programs, damage, limits, quotas, stress-ng: about 6 minutes)"
  suite pjdfstest.sh
  suite fsx.sh "${FSX_SECONDS:-60}" "${FSX_SEED:-1}"
  suite programs.sh
  suite own_mount.sh
  suite under_load.sh 1 "${LOAD_SEED:-1}" 400
  suite beside.sh
  suite acl.sh 4000 "${ACL_SEED:-1}"
  suite trash.sh
  suite limits.sh quick
  suite outside.sh quick
  suite quota.sh
  suite damaged.sh
  suite full.sh
  suite kill.sh 4
  # The other engine: what calls answer, and whether files read as they were written.
  lsm=PANDO_ENGINE=lsm
  suite $lsm PJDFSTEST_USERS=root pjdfstest.sh
  suite $lsm fsx.sh "${FSX_LSM_SECONDS:-15}" "${FSX_SEED:-1}"
  suite $lsm PROGRAMS_USERS=root programs.sh calls coherence totals extents handles
  suite $lsm own_mount.sh
  suite $lsm under_load.sh 1 "${LOAD_SEED:-1}" 400
  suite $lsm acl.sh 2000 "${ACL_SEED:-1}"
  suite $lsm trash.sh
  suite $lsm quota.sh
  suite $lsm damaged.sh
  suite $lsm full.sh
  suite $lsm kill.sh 4
  step "fuzzing (every decoder, random calls, damaged volumes: a minute of CPU time)"
  bash scripts/fuzz.sh 30 "${FUZZ_SEED:-1}"
fi
step "done"
if [ "$passed" -eq 0 ]; then
  echo "No test ran: that is a failure." >&2
  exit 1
fi
[ -z "${SKIP_FUSE:-}" ] || echo "NOT TESTED: mounts, of any test (SKIP_FUSE: $SKIP_FUSE)"
[ -z "${SKIP_ROOT:-}" ] || [ "$(id -u)" -eq 0 ] || echo "NOT TESTED: what takes root, of any test (SKIP_ROOT: $SKIP_ROOT)"
grep -h '^NOT TESTED' "$suites" || true
echo "$passed passed, $failed failed"
