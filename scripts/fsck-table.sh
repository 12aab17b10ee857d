#!/usr/bin/env bash
# Runs the corruption campaign and writes its table to docs/fsck.md. PANDO_SLOW=1: every place.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
$cargo test --package pando-fs --test it -- --nocapture campaign::run campaign::worn | tee "$log"
rows=$log.rows
trap 'rm -f "$log" "$rows"' EXIT
# Tests print their rows as they end.
grep '^| ' "$log" | LC_ALL=C sort --stable --field-separator='|' --key=2,2 > "$rows"
awk -v table="$rows" '
  /^<!-- table -->/ {
    print
    print "| volume | structure | damage | harmless | repaired | reported | lost in part | last changes lost | all lost | struck with it |"
    print "|---|---|---|---:|---:|---:|---:|---:|---:|---|"
    while ((getline line < table) > 0) print line
    skip = 1
    next
  }
  /^<!-- end of table -->/ { skip = 0 }
  !skip { print }
' docs/fsck.md > "$log.page"
mv "$log.page" docs/fsck.md
