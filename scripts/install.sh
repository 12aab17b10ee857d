#!/usr/bin/env bash
# Installs target/release/pando (PANDO=path: another binary) with the files that belong to it:
#   scripts/install.sh install      below PREFIX (/usr/local), in a tree below DESTDIR if that is set
#   scripts/install.sh uninstall    removes the same files
#   scripts/install.sh deb          packs a .deb into target/, for this architecture, with PREFIX=/usr;
#                                   MAINTAINER='NAME <MAIL>' is who answers for the package,
#                                   PACKAGE_DIR is where it goes, PACKAGE_COMPRESSION how it is
#                                   compressed (xz; gzip, none or what else dpkg-deb -Z takes)
# mount(8) searches for mount.pando only in /sbin, so that link is there whatever PREFIX is.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/steps.sh
pando=${PANDO:-$PWD/target/release/pando}
[ -x "$pando" ] || { echo "install: $pando is missing: run 'make build' first" >&2; exit 1; }
work=$(mktemp -d)
trap 'steps_quiet; rm -rf "$work"' EXIT

# lay PREFIX ROOT SBIN UNITS: the files, below ROOT
lay() {
  local prefix=$1 root=$2 sbin=$3 units=$4 page
  "$pando" generate "$work/made"
  install -D -m 755 "$pando" "$root$prefix/bin/pando"
  install -d "$root$sbin"
  ln -sfn "$prefix/bin/pando" "$root$sbin/mount.pando"
  for page in "$work"/made/man/man*/*; do
    gzip -9nf "$page"
    install -D -m 644 "$page.gz" "$root$prefix/share/man/$(basename "$(dirname "$page")")/$(basename "$page").gz"
  done
  install -D -m 644 "$work/made/bash/pando" "$root$prefix/share/bash-completion/completions/pando"
  install -D -m 644 "$work/made/zsh/_pando" "$root$prefix/share/zsh/$([ "$prefix" = /usr ] && echo vendor-completions || echo site-functions)/_pando"
  install -D -m 644 "$work/made/fish/pando.fish" "$root$prefix/share/fish/vendor_completions.d/pando.fish"
  install -D -m 644 scripts/package/pando.json "$root$prefix/share/pando/grafana/pando.json"
  for unit in pando-mount@.service pando-index@.service; do
    install -d "$root$units"
    sed "s|@BINDIR@|$prefix/bin|" "scripts/package/$unit" > "$root$units/$unit"
    chmod 644 "$root$units/$unit"
  done
}

case ${1:-} in
  install)
    prefix=${PREFIX:-/usr/local}
    lay "$prefix" "${DESTDIR:-}" /sbin "$prefix/lib/systemd/system"
    echo "installed ${DESTDIR:-}$prefix/bin/pando, mount.pando, man pages, completions and systemd units"
    ;;
  uninstall)
    prefix=${PREFIX:-/usr/local}
    # The list has the files that an installation creates.
    lay "$prefix" "$work/root" /sbin "$prefix/lib/systemd/system"
    (cd "$work/root" && find . ! -type d -printf '%P\0') | while IFS= read -r -d '' file; do
      rm -f "${DESTDIR:-}/$file"
    done
    echo "removed what 'make install' had installed below ${DESTDIR:-}$prefix"
    ;;
  deb)
    command -v dpkg-deb >/dev/null || { echo "deb: dpkg-deb is missing: apt-get install dpkg" >&2; exit 1; }
    version=$("$pando" --version | awk '{ print $2 }')-1
    maintainer=${MAINTAINER:-$(git config user.name || id -un) <$(git config user.email || echo "$(id -un)@$(hostname -f)")>}
    arch=$(dpkg --print-architecture)
    root=$work/pando_${version}_$arch
    step "packing ${PACKAGE_DIR:-target}/pando_${version}_$arch.deb"
    # In /usr/sbin: /sbin is a link to it, which a package must not go through.
    lay /usr "$root" /usr/sbin /usr/lib/systemd/system
    strip --strip-unneeded --remove-section=.comment "$root/usr/bin/pando"
    ln -sfn ../bin/pando "$root/usr/sbin/mount.pando"
    install -d "$root/usr/share/doc/pando" "$root/DEBIAN"
    # The licence is Apache's, which Debian stores once.
    cat > "$root/usr/share/doc/pando/copyright" <<'TEXT'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: PandoFS

Files: *
Copyright: 2026 The PandoFS authors
License: Apache-2.0
 On Debian systems the full text of the Apache License, version 2.0, is in
 /usr/share/common-licenses/Apache-2.0.
TEXT
    gzip -9nc CHANGELOG.md > "$root/usr/share/doc/pando/changelog.gz"
    gzip -9nc > "$root/usr/share/doc/pando/changelog.Debian.gz" <<TEXT
pando ($version) unstable; urgency=medium

  * Version ${version%-*}: /usr/share/doc/pando/changelog.gz lists what changed.

 -- $maintainer  $(date -R -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}")
TEXT
    # The libraries that the program is linked with; it talks to FUSE without libfuse.
    libc=$(objdump -T "$pando" | sed -n 's/.*(\?GLIBC_\([0-9.]*\))\? .*/\1/p' | sort -V | tail -1)
    cat > "$root/DEBIAN/control" <<TEXT
Package: pando
Version: $version
Section: admin
Priority: optional
Architecture: $arch
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= ${libc:-2.31}), libgcc-s1
Recommends: fuse3
Maintainer: $maintainer
Description: file-system namespace with O(1) snapshots and clones of any directory
 PandoFS keeps files and metadata in one directory of a local file system, is
 mounted through FUSE, and needs no database and no kernel module. Any
 directory is snapshotted, cloned and rolled back in constant time, trees are
 removed at once, and an index that cannot be stale answers searches.
TEXT
    find "$root" -type d -exec chmod 755 {} +
    dpkg-deb --root-owner-group -Z"${PACKAGE_COMPRESSION:-xz}" --build "$root" "${PACKAGE_DIR:-target}/pando_${version}_$arch.deb"
    steps_end
    ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
