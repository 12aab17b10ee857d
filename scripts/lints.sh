#!/usr/bin/env bash
# Lints and documentation, warnings as errors, of every crate, program, test and example, on what the build of
# the tests made for their dependencies: nothing is analysed for them but these. How the build called the
# compiler is known from scripts/rustc-recorded.sh.
#   PATH=$PWD/scripts:$PATH RUSTC_WORKSPACE_WRAPPER=rustc-recorded.sh scripts/lints.sh lints|docs ARGUMENT OF CARGO TEST...
# Beside what was built it looks at
#   programs without their tests, because the build makes all of them only with tests
#   examples, as if they were tests of their package
#   pando-device without its feature `sim`: each has code that the other has not
# A library or program that was built with and without its tests is linted with them, and without them only
# if its code differs by more than whole items: the compiler's own lints, such as unused code, were errors
# when it was built (scripts/rustc-recorded.sh), and clippy's see the same code twice.
# An empty file CRATE-HASH.WHAT.VARIANT beside the record means that it passed, until a file of its package,
# or how it is compiled, changes.
set -euo pipefail
# Cargo names directories without links.
cd -P "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
what=$1
shift
sysroot=$(rustc --print sysroot)
recorded=$PWD/target/debug/recorded
export what sysroot recorded

# call VARIANT: sets `call` to what clippy and rustdoc take of `arguments`, and `program` to yes for a
# program.
call() {
  local variant=$1 argument='' previous='' example=''
  [[ $variant != *.rs ]] || example=$variant
  call=() program=yes
  for argument in "${arguments[@]:1}"; do
    case $previous in
      -C)
        # Not what names the build's files. Cargo gives rustdoc none of these.
        case $what,$argument in
          docs,* | *,extra-filename=* | *,incremental=*) ;;
          *) call+=(-C "$argument") ;;
        esac
        ;;
      --cfg) [[ $variant = bare && $argument = 'feature="sim"' ]] || call+=(--cfg "$argument") ;;
      --crate-name) call+=(--crate-name "$([ -z "$example" ] && echo "$argument" || basename "$example" .rs)") ;;
      --crate-type)
        program=
        call+=(--crate-type "$argument")
        ;;
      --out-dir) ;;
      *)
        case $argument in
          -C | --cfg | --crate-name | --crate-type | --out-dir | --error-format=* | --json=* | --emit=*) ;;
          --test) [ "$variant" != built ] || call+=(--test) ;;
          *.rs) call+=("${example:-$argument}") ;;
          *) call+=("$argument") ;;
        esac
        ;;
    esac
    previous=$argument
  done
  # Tests and programs have no type among the arguments.
  [ -z "$program" ] || [ "$variant" = built ] || call+=(--crate-type bin)
}

# unit RECORD VARIANT: `built`, `plain` (a program without its tests), `bare` (without `sim`), or the path of
# an example.
unit() {
  local record=$recorded/$1 variant=$2 directory='' variables=() arguments=() call program package code=0
  local mark="$record.$what.${variant##*/}"
  [ -e "$record" ] || { echo "lints.sh: $record is missing: build it with scripts/rustc-recorded.sh" >&2 && return 1; }
  # shellcheck disable=SC1090
  . "$record"
  package=$(printf '%s\n' "${variables[@]}" | sed -n 's/^CARGO_MANIFEST_DIR=//p')
  if [[ $mark -nt $record && $mark -nt clippy.toml && $mark -nt scripts/lints.sh && $mark -nt scripts/rustc-recorded.sh ]] &&
    [ -z "$(find "$package" -newer "$mark" -type f -print -quit)" ]; then
    return 0
  fi
  rm -f "$mark"
  touch "$mark.began"
  call "$variant"
  cd "$directory"
  if [ "$what" = lints ]; then
    # As cargo-clippy passes `-D warnings`.
    env "${variables[@]}" CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__ \
      "$sysroot/bin/clippy-driver" "${arguments[0]}" "${call[@]}" --emit=metadata --out-dir "$mark.out" > "$mark.log" 2>&1 || code=$?
  else
    [ -z "$program" ] || call+=(-Arustdoc::private-intra-doc-links)
    # `--check` writes no pages, which is more than a third of the work; this compiler calls it unstable.
    env "${variables[@]}" RUSTC_BOOTSTRAP=1 "$sysroot/bin/rustdoc" "${call[@]}" --document-private-items -D warnings \
      -Z unstable-options --check -o "$mark.out" > "$mark.log" 2>&1 || code=$?
  fi
  rm -rf "$mark.out"
  [ "$code" -ne 0 ] || mv "$mark.began" "$mark"
  # In one piece: others run beside it.
  [ ! -s "$mark.log" ] || flock "$recorded" cat "$mark.log" >&2
  rm -f "$mark.log" "$mark.began"
  return "$code"
}

# For a pattern of sed.
quoted() { printf '%s' "$1" | sed 's/[][\.*^$|]/\\&/g'; }

# Lines `PACKAGE_DIRECTORY KIND TEST NAME-HASH SOURCE` of what was built of ours.
units() {
  $cargo test "$@" --no-run --quiet --message-format=json |
    sed -n 's|^{"reason":"compiler-artifact",.*"manifest_path":"\('"$(quoted "$PWD")"'/[^"]*\)/Cargo.toml","target":{"kind":\["\([a-z]*\)".*"src_path":"\([^"]*\)".*"test":\([a-z]*\)},.*"filenames":\["[^"]*/\([^"/]*\)".*|\1 \2 \4 \5 \3|p' |
    sed 's| lib\([^ ]*\)\.r[a-z]* | \1 |'
}

# Lines `KIND SOURCE` of targets of the workspace that are not among the units, nor examples of the work.
unseen() {
  {
    sed -n 's|^[^ ]* \(/.*\)|example \1|p' "$list"
    awk '$2 != "lib" && $3 == "true" || $2 == "lib" && $3 == "false" { print $2, $5 }' "$list.units"
  } | sort -u > "$list.seen"
  # grep fails if it finds none, and so does this.
  $cargo metadata --no-deps --format-version 1 |
    grep -oE '"kind":\["[a-z-]*"\],"crate_types":\[[^]]*\],"name":"[^"]*","src_path":"[^"]*"' |
    sed 's|^"kind":\["\([a-z-]*\)".*"src_path":"\(.*\)"$|\1 \2|' | sort -u | comm -23 - "$list.seen"
}

# Whether code of a package differs in its tests by more than whole items, such as modules.
differs() {
  # shellcheck disable=SC2016
  find "$1/src" -name '*.rs' -exec awk '
    FNR == 1 { item = 1 }
    /not\(test\)|cfg!\(.*test|cfg_attr\(((any|all)\()?test/ { print }
    !item && !/^ *(#\[|\/\/)/ {
      if (!/^ *(pub(\([a-z:]+\))? )?(unsafe )?(mod|use|fn|impl|const|static|struct|enum|trait|type) /) print
      item = 1
    }
    # Not where a text names it.
    /^ *#\[cfg\(((any|all)\()?test/ && !/\\n/ { item = 0 }' {} + | grep -q .
}

# built PACKAGE_DIRECTORY KIND TEST SOURCE: whether the build made it, with its tests (`true`) or without.
built() { awk -v is="$*" '$1 " " $2 " " $3 " " $5 == is { found = 1 } END { exit !found }' "$list.units"; }

# Lines `RECORD VARIANT`.
work() {
  local package kind test record source example
  while read -r package kind test record source; do
    case $what,$kind,$test in
      lints,*,true) echo "$record built" ;;
      lints,lib,false)
        built "$package" lib true "$source" && ! differs "$package" || echo "$record built"
        ;;
      docs,lib,false) echo "$record built" ;;
    esac
    case $kind,$test in
      bin,true)
        [ "$what" = lints ] && built "$package" bin false "$source" && ! differs "$package" || echo "$record plain"
        ;;
      lib,false) [ "$package" != "$PWD/crates/device" ] || echo "$record bare" ;;
      test,true)
        [[ $what = lints && $record = it-* ]] || continue
        for example in "$package"/examples/*.rs; do
          [ ! -e "$example" ] || echo "$record $example"
        done
        ;;
    esac
  done
}

list=$(mktemp)
trap 'rm -f "$list" "$list.units" "$list.seen"' EXIT
units "$@" > "$list.units"
work < "$list.units" > "$list"
if [ "$what" = lints ]; then
  # On a line of its own, so that it ends the script if it fails.
  missing=$(unseen)
  if [ -n "$missing" ]; then
    printf 'lints.sh: the build of the tests does not make these, so they would not be looked at:\n%s\n' "$missing" >&2
    exit 1
  fi
fi
export -f unit call
xargs -L 1 -P "$(nproc)" bash -c 'set -euo pipefail && unit "$@"' unit < "$list" || exit 1
