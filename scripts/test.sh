#!/usr/bin/env bash
# Everything that CI runs. Stops at the first failure; prints how many tests ran, how long each step
# took, and what was not tested. Campaigns have a short form here; `make soak` runs them whole.
# It mounts file systems of several users, for which it needs root and /dev/fuse. If one of them is
# not available, a variable gives the reason, and the rest runs:
#   SKIP_ROOT='no root here' make test     an ordinary user, who may mount through fusermount3
#   SKIP_FUSE='no FUSE here' make test     nothing is mounted
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
. scripts/watched.sh
cargo=${CARGO:-cargo}
log=$(mktemp)
suites=$(mktemp)
building=
# Also ends what is built beside, a process group of its own.
trap 'steps_quiet; [ -z "$building" ] || kill -- "-$building" 2>/dev/null || true; rm -f "$log" "$suites"' EXIT
export SKIP_ROOT=${SKIP_ROOT:-} SKIP_FUSE=${SKIP_FUSE:-}
# An empty value counts as unset.
[ -n "$SKIP_ROOT" ] || unset SKIP_ROOT
[ -n "$SKIP_FUSE" ] || unset SKIP_FUSE

# Suites and an S3 server are built beside the lints and the tests, by the user who began: what Go
# and Cargo keep in a home directory stays that user's. `tools_wait` awaits them.
tools=target/tools/building
tools_begin() {
  mkdir -p target/tools
  rm -f "$tools.code"
  set -m
  (
    code=0
    nice -n 5 bash scripts/setup.sh suites > "$tools.log" 2>&1 < /dev/null || code=$?
    echo "$code" > "$tools.code"
  ) &
  set +m
  building=$!
  export TOOLS=$building
}
tools_wait() {
  while [ ! -s "$tools.code" ]; do
    # It may have ended between the two looks.
    kill -0 "$TOOLS" 2>/dev/null || [ -s "$tools.code" ] || echo "ended without a result" > "$tools.code"
    sleep 0.2
  done
  cat "$tools.log"
  [ "$(cat "$tools.code")" = 0 ] || { echo "scripts/setup.sh suites failed: $(cat "$tools.code")" >&2 && exit 1; }
}

# Checked first: reporting it after ten minutes of building helps nobody.
if [ "$(id -u)" -ne 0 ] && [ -z "${SKIP_ROOT:-}${SKIP_FUSE:-}" ]; then
  # As for packages: uses sudo if it needs no password.
  if sudo -n true 2>/dev/null; then
    echo "As root, by sudo: the tests mount file systems of several users."
    tools_begin
    code=0
    sudo -n --preserve-env env "PATH=$PATH" "HOME=$HOME" bash scripts/test.sh || code=$?
    # The caller keeps ownership of what was built.
    sudo -n chown -R "$(id -u):$(id -g)" target
    exit "$code"
  fi
  cat >&2 <<'TEXT'
The tests mount file systems of several users, and loop devices beside them: that takes root, and you are not.
Run one of
    sudo env "PATH=$PATH" make test                     everything
    SKIP_ROOT='no root on this machine' make test       what an ordinary user can run; the end lists what was skipped
TEXT
  exit 1
fi
if [ ! -w /dev/fuse ] && [ -z "${SKIP_FUSE:-}" ]; then
  cat >&2 <<'TEXT'
The tests mount file systems, and /dev/fuse is not usable here.
Give this machine FUSE (`modprobe fuse`; for a container `--device /dev/fuse --cap-add SYS_ADMIN`), or give the reason why not:
    SKIP_FUSE='no FUSE in this container' make test
TEXT
  exit 1
fi

# In a fresh clone, what incremental builds store for later ones costs more than it saves here, and
# lines of code in backtraces cost a tenth of the build; a panic names its line without them.
fresh=
if ! [ -d target/debug/incremental ]; then
  fresh=yes
  # With fewer parts of a crate less generic code is compiled in several of them.
  export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_DEV_CODEGEN_UNITS=4
  # Then lints and documentation use what the build made. By its name: a path would be part of the hashes of
  # crates, on which it depends which generic code they share, and so would the counts of instructions.
  export PATH=$PWD/scripts:$PATH RUSTC_WORKSPACE_WRAPPER=rustc-recorded.sh
fi
# Once, with the code for tests in which a seed drives threads: elsewhere it does nothing. Not `--lib`: that
# builds libraries once more that have no tests of their own. Documentation has no examples that run, so
# its tests would only start rustdoc.
what=(--workspace --features pando-scheduled/sim --bins --tests)

echo "Formats, lints, documentation, the tests, POSIX suites on both engines, fuzzing: about 12 minutes on"
echo "two idle cores in a fresh clone, two fifths of it building; longer on a busy machine."
[ -n "${TOOLS:-}" ] || tools_begin

step "formatting"
$cargo fmt --all --check

build() {
  step "building the tests"
  $cargo test "${what[@]}" --no-run --quiet
}

if [ -n "$fresh" ]; then
  build
  step "lints, on all targets, warnings are errors"
  CARGO="$cargo" bash scripts/lints.sh lints "${what[@]}"
  step "documentation, warnings are errors"
  CARGO="$cargo" bash scripts/lints.sh docs "${what[@]}"
else
  # Here Cargo's own lints and documentation are incremental, as a developer runs them.
  # With the code for tests in which a seed drives threads, then without in the crate that has both. Not
  # `--all-targets`: that checks libraries without tests of their own twice.
  step "lints, on all targets, warnings are errors"
  $cargo clippy --workspace --lib --bins --tests --examples --features pando-scheduled/sim --quiet -- -D warnings
  $cargo clippy --package pando-device --quiet -- -D warnings

  # With the lints' program and arguments as Cargo passes them, so that crates are not checked once more
  # for their documentation; then the crate that has both, again without. The features of the two
  # crates are named: no dependency of tests counts here, through which the lints had them.
  step "documentation, warnings are errors"
  RUSTDOCFLAGS="-D warnings" RUSTC_WORKSPACE_WRAPPER="$(rustc --print sysroot)/bin/clippy-driver" \
    CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__" \
    $cargo doc --workspace --features pando-scheduled/sim,pando-device/sim,pando-testing/sim \
    --no-deps --document-private-items --quiet
  RUSTDOCFLAGS="-D warnings" RUSTC_WORKSPACE_WRAPPER="$(rustc --print sysroot)/bin/clippy-driver" \
    CLIPPY_ARGS="-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__" \
    $cargo doc --package pando-device --no-deps --document-private-items --quiet
  build
fi

step "building the POSIX suites and an S3 server, begun before the lints"
tools_wait

step_aloud "two lanes: tests on real mounts, POSIX suites (pjdfstest, fsx, programs, damage, limits, quotas, stress-ng); all other tests, fuzzing"
rc=0
CARGO="$cargo" watched "$log" bash scripts/tests.sh "$suites" "${what[@]}" || rc=$?
[ "$rc" -eq 0 ] || { sleep 1 && bash scripts/failures.sh "$log" >&2 && exit "$rc"; }

count() { awk -v what="$1;" '/^[a-z/]+: test result:/ { for (i = 1; i <= NF; i++) if ($i == what) n += $(i-1) } END { print n + 0 }' "$log"; }
passed=$(count passed) failed=$(count failed)
steps_table
if [ "$passed" -eq 0 ]; then
  echo "No test ran: that is a failure." >&2
  exit 1
fi
[ -z "${SKIP_FUSE:-}" ] || echo "NOT TESTED: mounts, of any test (SKIP_FUSE: $SKIP_FUSE)"
[ -z "${SKIP_ROOT:-}" ] || [ "$(id -u)" -eq 0 ] || echo "NOT TESTED: what takes root, of any test (SKIP_ROOT: $SKIP_ROOT)"
bash scripts/etcd.sh path >/dev/null 2>&1 ||
  echo "NOT TESTED: servers that take over (etcd: apt-get install etcd-server)"
bash scripts/s3-server.sh path >/dev/null 2>&1 ||
  echo "NOT TESTED: a third party's S3 server (versitygw needs Go: bash scripts/s3-server.sh install)"
grep -h '^NOT TESTED' "$suites" || true
echo "$passed passed, $failed failed"
