#!/usr/bin/env bash
# Cargo's RUSTC_WORKSPACE_WRAPPER while `make test` builds in a fresh clone: stores the compiler's arguments,
# and the variables that Cargo sets for them, in target/debug/recorded/CRATE-HASH, then compiles.
# scripts/lints.sh has clippy and rustdoc do the same work on what the build made for its dependencies.
# Cargo calls it whenever a unit is compiled, so a file there is never older than the unit's program.
# Warnings are errors: then scripts/lints.sh need not look again at what a library's tests contain, too.
# Some test programs are compiled without optimization, for which Cargo has no setting beside that of their
# package's library: what their tests compute in is in libraries, or takes less time than the compiler
# (docs/decisions/0306).
set -euo pipefail
name='' extra='' out='' previous='' tests=''
for argument; do
  case $previous$argument in
    --crate-name*) name=$argument ;;
    --out-dir*) out=$argument ;;
    -Cextra-filename=*) extra=${argument#extra-filename=} ;;
    *--test) tests=tests ;;
  esac
  previous=$argument
done
arguments=("$@")
[ -z "$name" ] || arguments+=(-D warnings)
case $tests,$name,${CARGO_PKG_NAME:-} in
  tests,it,pando-btree | tests,it,pando-fs | tests,it,pando-lsm | tests,it,pando-testing | \
    tests,it,pando-cluster | tests,it,pando-ops | tests,it,pando-wire | tests,fuzz,pando-fuzz | \
    tests,it,pando-device | tests,it,pando-remote | tests,it,pando-store | tests,it,pando-transfer | \
    tests,trace,pando-trace | \
    tests,rpc,pando-rpc | tests,volume,pando-volume | \
    tests,device,pando-device | tests,format,pando-format | tests,fs,pando-fs | tests,lsm,pando-lsm)
    arguments=("${arguments[@]/#opt-level=[1-3]/opt-level=0}")
    ;;
  # The program of thousands of commands and daemons: at a fixed address, a start need not relocate
  # a megabyte of constants, which was most of its page faults (docs/decisions/0321).
  ,pando,pando) arguments+=(-C relocation-model=static) ;;
esac
# Cargo's questions about the compiler have no directory.
if [[ $name && $out == */deps ]]; then
  # Not all of CARGO_*: some are secret.
  variables=()
  while IFS= read -r -d '' variable; do
    case $variable in
      CARGO_PKG_* | CARGO_MANIFEST_* | CARGO_BIN_* | CARGO_CRATE_NAME=* | CARGO_TARGET_TMPDIR=* | OUT_DIR=*)
        variables+=("$variable") ;;
    esac
  done < <(env -0)
  record=${out%/deps}/recorded/$name$extra
  mkdir -p "${record%/*}"
  {
    echo "directory=${PWD@Q}"
    echo "variables=(${variables[*]@Q})"
    echo "arguments=(${arguments[*]@Q})"
  } > "$record.$$"
  mv "$record.$$" "$record"
fi
exec "${arguments[@]}"
