#!/usr/bin/env bash
# Runs the corruption campaign and puts its table into docs/fsck.md. PANDO_SLOW=1: of every place.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
$cargo test --package pando-fs --test it campaign -- --nocapture | tee "$log"
awk -v table="$log" '
  /^<!-- table -->/ { print; while ((getline line < table) > 0) if (line ~ /^\|/) print line; skip = 1; next }
  /^<!-- end of table -->/ { skip = 0 }
  !skip { print }
' docs/fsck.md > "$log.page"
mv "$log.page" docs/fsck.md
