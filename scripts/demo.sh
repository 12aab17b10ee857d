#!/usr/bin/env bash
# The main job on a real tree: the time of each step, beside the same step with the usual tools.
#   scripts/demo.sh [DIR]      KEEP=1 leaves the volume and the mount behind
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
source_dir=$(realpath "${1:-/usr/share}")
cargo=${CARGO:-cargo}
[ -d "$source_dir" ] || { echo "demo: $source_dir is not a directory" >&2; exit 2; }

# build: prints the amount of work before it starts, and its progress while it runs
build() {
  local all built=0 failed=0 line begin=$SECONDS last=$SECONDS
  step "asking cargo which crates there are"
  # Without a network or a lock file it fails; the build then prints why.
  all=$( ($cargo tree --package pando --edges normal,build --prefix none 2>/dev/null || true) | sort -u | wc -l)
  [ "$all" -gt 0 ] || all=all
  step "building target/demo/pando: $all crates the first time, a few minutes on two idle cores"
  while IFS= read -r line; do
    case $line in
      *Compiling*)
        built=$((built + 1))
        [ $((SECONDS - last)) -lt 4 ] || echo "   $built of $all crates after $((SECONDS - begin)) s:${line#*Compiling}"
        [ $((SECONDS - last)) -lt 4 ] || last=$SECONDS
        ;;
      "demo: the build failed") failed=1 ;;
      *Downloading* | *Downloaded* | *Updating* | *Blocking* | *Finished*) ;;
      *) printf '%s\n' "$line" ;;
    esac
  done < <($cargo build --profile demo --package pando 2>&1 || echo "demo: the build failed")
  [ "$failed" -eq 0 ] || { echo "demo: the program could not be built" >&2 && exit 1; }
}

pando=${PANDO:-}
if [ -z "$pando" ]; then
  build
  pando=$PWD/target/demo/pando
fi
step "counting what is in $source_dir"
entries=$( (find "$source_dir" 2>/dev/null || true) | wc -l)
steps_end
echo "   $source_dir has $entries entries; with the usual tools beside it the demo takes some minutes for"
echo "   some hundred thousand of them"

work=$(mktemp -d "${TMPDIR:-/var/tmp}/pando-demo.XXXXXX")
chmod 755 "$work"
volume=$work/volume
mount=$work/mnt
plain=$work/plain
mkdir "$mount"

mounted=no
cleanup() {
  status=$?
  # It cleans up also where nobody reads its lines any more.
  set +e
  trap '' PIPE
  if [ "${KEEP:-}" = 1 ]; then
    steps_quiet
    echo
    echo "kept: volume $volume, mounted on $mount (pando umount $mount; rm -r $work)"
  else
    steps_last "unmounting, and removing $work"
    "$pando" umount "$mount" >/dev/null 2>&1
    "$pando" umount "$volume" >/dev/null 2>&1
    mountpoint -q "$mount" && umount -l "$mount" 2>/dev/null
    rm -rf "$work"
    steps_end
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

now() { date +%s%N; }
rows=()
# measure LABEL COMMAND...   runs it and leaves the milliseconds in $took
measure() {
  local start
  start=$(now)
  "$@"
  took=$(( ($(now) - start) / 1000 ))
}
pretty() { # microseconds
  awk -v us="$1" 'BEGIN { if (us < 1000) printf "%d us", us; else if (us < 1e6) printf "%.1f ms", us / 1000; else printf "%.2f s", us / 1e6 }'
}
row() { rows+=("$1|$2|$3"); }

step "formatting a volume in $volume"
measure "$pando" format "$volume"
row "format a volume" "$(pretty "$took")" "-"

if reason=$("$pando" mount "$volume" "$mount" 2>&1); then
  mounted=yes
  inside() { printf '%s/%s' "$mount" "$1"; }
  step "mounted on $mount"
else
  inside() { printf '%s:/%s' "$volume" "$1"; }
  step "cannot mount here, going on through the library: $reason"
fi

step "importing $source_dir"
measure "$pando" import "$source_dir" "$(inside tree)"
imported=$took
measure cp -a "$source_dir" "$plain"
row "import the tree | cp -a on this disk" "$(pretty "$imported")" "$(pretty "$took")"
files=$(find "$plain" | wc -l)

list_ours() { if [ $mounted = yes ]; then find "$mount/tree" -ls >/dev/null; else "$pando" ls -lR "$(inside tree)" >/dev/null; fi; }
list_plain() { find "$plain" -ls >/dev/null; }
verb_list() { "$pando" ls -lR "$(inside tree)" >/dev/null; }
measure list_plain; plain_list=$took
if [ $mounted = yes ]; then
  measure list_ours
  row "find -ls through the mount | on this disk" "$(pretty "$took")" "$(pretty "$plain_list")"
fi
measure verb_list
row "pando ls -lR | find -ls" "$(pretty "$took")" "$(pretty "$plain_list")"

step "search: the same expression by pando find and by find"
asked=(-type f -name '*a*' -size +8k -printf '%P\n')
find_ours() { "$pando" find "$(inside tree)" "${asked[@]}" >"$work/found"; }
find_plain() { find "$plain" "${asked[@]}" >"$work/found-plain"; }
total_ours() { "$pando" du -s -b "$(inside tree)" >/dev/null; }
total_plain() { du -s -b "$plain" >/dev/null; }
find_ours # the first question of a volume reads it
measure find_ours; find_time=$took
measure find_plain
row "pando find, an expression | find" "$(pretty "$find_time")" "$(pretty "$took")"
if ! cmp -s <(LC_ALL=C sort "$work/found") <(LC_ALL=C sort "$work/found-plain"); then
  echo "demo: pando find and find do not find the same" >&2
  exit 1
fi
echo "   ok: both find the same $(wc -l <"$work/found") files"
measure total_ours; total_time=$took
measure total_plain
row "pando du of the tree | du" "$(pretty "$total_time")" "$(pretty "$took")"
if [ $mounted = yes ]; then
  echo "   the three largest: $(ls "$mount/.search/size:>1M" | wc -l) links in .search/size:>1M, of them"
  "$pando" find "$mount/tree" --sort size:desc --limit 3 | sed 's/^/      /'
fi

# sum NAME: a checksum over every path, mode and content below a directory of the mount
sum() {
  if [ $mounted = yes ]; then
    (cd "$mount/$1" && find . -printf '%P %y %m %s %l\n' | LC_ALL=C sort && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum) | sha256sum
  else
    "$pando" ls -lR "$(inside "$1")" | sha256sum
  fi
}
same() {
  if [ "$1" = "$2" ]; then echo "   ok: $3"; else echo "demo: NOT the same: $3" >&2; exit 1; fi
}
if [ $mounted = yes ]; then
  step "comparing the import with its source"
  diff -r --no-dereference "$plain" "$mount/tree" >"$work/diff" 2>&1 || true
  if [ -s "$work/diff" ] && grep -qv -e 'recursive directory loop' -e 'is a fifo' -e 'is a socket' -e 'special file' "$work/diff"; then
    head -5 "$work/diff" >&2
    echo "demo: the import differs from its source" >&2
    exit 1
  fi
  echo "   ok: diff -r finds no difference"
fi

step "snapshot, change, look again"
before=$(sum tree)
measure "$pando" snapshot create "$(inside tree)" monday
snapshot_time=$took
measure cp -a "$plain" "$work/plain-copy"
copy_time=$took
row "snapshot of $files entries | cp -a" "$(pretty "$snapshot_time")" "$(pretty "$copy_time")"
if [ $mounted = yes ]; then
  first=$(find "$mount/tree" -type f -size +0 -print -quit)
  [ -z "$first" ] || echo "changed" >>"$first"
  mkdir "$mount/tree/new-directory" && echo new >"$mount/tree/new-directory/file"
  same "$(sum tree/.snapshots/monday)" "$before" "the snapshot shows what was there before the change"
  [ "$(sum tree)" != "$before" ] || { echo "demo: the change is not visible" >&2; exit 1; }
else
  "$pando" import scripts "$(inside tree/new-directory)"
  same "$(sum tree/.snapshots/monday)" "$before" "the snapshot shows what was there before the change"
fi

step "clone, write in the clone"
measure "$pando" clone "$(inside tree)" "$(inside fork)"
row "clone of $files entries | cp -a" "$(pretty "$took")" "$(pretty "$copy_time")"
changed=$(sum tree)
if [ $mounted = yes ]; then
  echo "only in the clone" >"$mount/fork/only-here"
else
  "$pando" import scripts "$(inside fork/only-here)"
fi
same "$(sum tree)" "$changed" "writing in the clone did not touch its source"

step "roll back"
measure "$pando" rollback "$(inside tree)" monday
row "roll back to the snapshot" "$(pretty "$took")" "-"
same "$(sum tree)" "$before" "the tree is what it was at the snapshot"

if [ $mounted = yes ]; then
  step "kill -9 the mount, mount again"
  "$pando" sync "$mount"
  pid=$("$pando" status --json "$volume" | tr ',{}' '\n\n\n' | sed -n 's/^ *"pid": *\([0-9][0-9]*\).*/\1/p' | head -1)
  kill -9 "$pid"
  for _ in $(seq 1200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
  umount -l "$mount" 2>/dev/null || fusermount3 -uz "$mount" 2>/dev/null || true
  measure "$pando" mount "$volume" "$mount"
  row "mount after kill -9" "$(pretty "$took")" "-"
  same "$(sum tree)" "$before" "after the kill the tree is complete"
  same "$(sum tree/.snapshots/monday)" "$before" "and so is its snapshot"
fi

step "delete"
measure "$pando" rmr "$(inside fork)"
rmr_time=$took
measure rm -rf "$work/plain-copy"
row "rmr of $files entries | rm -rf" "$(pretty "$rmr_time")" "$(pretty "$took")"

step "the status of the volume"
"$pando" status "$volume"
steps_end
echo
printf '%-48s %14s %14s\n' "step ($files entries)" "pando" "usual tool"
printf '%.0s-' $(seq 78); echo
for entry in "${rows[@]}"; do
  label=${entry%|*|*}; rest=${entry#"$label"|}
  printf '%-48s %14s %14s\n' "${label/ | / / }" "${rest%|*}" "${rest#*|}"
done
echo
echo "Times are of whole commands on this machine; page cache warm; log mode async, snapshot,"
echo "clone, roll back and rmr durable when they return; cp and rm durable when the kernel writes back."
