#!/usr/bin/env bash
# All that CI runs. Stops at the first thing that is wrong; says how many tests ran.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
# How long the tests may take altogether, once they are built.
LONGEST=${LONGEST:-40m}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

step() { printf '\n== %s\n' "$*"; }

step "formatting"
$cargo fmt --all --check

step "lints, on all targets, warnings are errors"
$cargo clippy --workspace --all-targets --quiet -- -D warnings

step "documentation, warnings are errors"
RUSTDOCFLAGS="-D warnings" $cargo doc --workspace --no-deps --document-private-items --quiet

if [ ! -w /dev/fuse ] && [ -z "${SKIP_FUSE:-}" ]; then
  echo "The tests mount file systems, and /dev/fuse is not usable here." >&2
  echo "Give this machine FUSE, or say why not: SKIP_FUSE='no FUSE in this container' make test" >&2
  exit 1
fi
[ -z "${SKIP_FUSE:-}" ] || echo "NOT TESTED: mounts ($SKIP_FUSE)"

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
if [ "$failed" -eq 0 ]; then
  step "POSIX suites on real mounts (pjdfstest, fsx, programs, limits, quotas, stress-ng: about 3 minutes)"
  bash scripts/posix/pjdfstest.sh
  bash scripts/posix/fsx.sh "${FSX_SECONDS:-60}" "${FSX_SEED:-1}"
  # The other engine, in short: what calls answer, and whether files read as they were written.
  PANDO_ENGINE=lsm PJDFSTEST_USERS=root bash scripts/posix/pjdfstest.sh
  PANDO_ENGINE=lsm bash scripts/posix/fsx.sh "${FSX_LSM_SECONDS:-15}" "${FSX_SEED:-1}"
  bash scripts/posix/programs.sh
  bash scripts/posix/own_mount.sh
  bash scripts/posix/under_load.sh 1 "${LOAD_SEED:-1}" 400
  PANDO_ENGINE=lsm bash scripts/posix/under_load.sh 1 "${LOAD_SEED:-1}" 400
  bash scripts/posix/beside.sh
  bash scripts/posix/acl.sh 4000 "${ACL_SEED:-1}"
  bash scripts/posix/trash.sh
  bash scripts/posix/limits.sh quick
  bash scripts/posix/outside.sh quick
  bash scripts/posix/quota.sh
  bash scripts/posix/kill.sh 4
  step "fuzzing (every decoder, random calls, damaged volumes: a minute of CPU time)"
  bash scripts/fuzz.sh 30 "${FUZZ_SEED:-1}"
fi
step "done"
if [ "$passed" -eq 0 ]; then
  echo "No test ran: that is a failure." >&2
  exit 1
fi
echo "$passed passed, $failed failed"
