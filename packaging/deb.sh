#!/usr/bin/env bash
# Builds Debian packages: srd_<version>_<arch>.deb with the program, the C library, the libfabric
# provider and the plugin of NCCL, and libsrd-dev_<version>_<arch>.deb with the files that C programs
# need to compile; with --book also srd-doc_<version>_all.deb with the book. Prints their names.
#
#   packaging/deb.sh [--binary FILE] [--libraries DIR] [--out DIR] [--book] [--fast]
#
# --binary  an existing program; otherwise cargo builds one for release
# --libraries
#           the directory of libsrd.so, libsrd.a, libsrd_fi.so and libnccl_net_srd.so; otherwise cargo
#           builds them as well, unless --binary is given: then the package has no libraries
# --out     the directory for the packages [default: the target directory]
# --book    also srd-doc, which needs what packaging/book/book.sh needs, and the libraries
# --fast    without compression, for tests
#
# The maintainer is DEBFULLNAME and DEBEMAIL, if they are set, else the committer of the commit;
# DEBHOMEPAGE is the field Homepage.
#
# Needs dpkg-deb, gzip and binutils, which every compiler on Debian requires. The program generates man
# pages and completions, so a new command is packaged without a change here. The same program and the
# same commit give the same package.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
target=${CARGO_TARGET_DIR:-$root/target}

binary='' libraries='' out=$target compression=xz book=''
while [ $# -gt 0 ]; do
    case $1 in
    --binary) binary=$2 && shift 2 ;;
    --libraries) libraries=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    --book) book=1 && shift ;;
    --fast) compression=none && shift ;;
    *) echo "usage: packaging/deb.sh [--binary FILE] [--libraries DIR] [--out DIR] [--book] [--fast]" >&2 && exit 2 ;;
    esac
done
for program in dpkg-deb dpkg gzip strip objdump; do
    command -v "$program" >/dev/null && continue
    echo "$program is not installed: apt-get install dpkg gzip binutils" >&2
    exit 3
done
if [ -z "$binary" ]; then
    (cd "$root" && cargo build --release --locked --package srd-cli --package srd-capi --package srd-ofi \
        --package srd-nccl)
    binary=$target/release/srd libraries=$target/release
fi

committer() { git -C "$root" log -1 --format="$1" 2>/dev/null || true; }
name=${DEBFULLNAME:-$(committer %cn)} email=${DEBEMAIL:-$(committer %ce)}
maintainer="${name:-OpenSRD maintainers} <${email:-root@$(hostname -f 2>/dev/null || hostname)}>"
homepage=${DEBHOMEPAGE:+Homepage: $DEBHOMEPAGE
}
# The time of the commit, so that a package is reproducible; outside of a clone, the present time.
epoch=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH=$epoch
version=$("$binary" --version | cut -d' ' -f2)
architecture=$(dpkg --print-architecture)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
umask 022
package=$stage/srd
control=$package/DEBIAN

development=$stage/libsrd-dev

put() { install -D -m "$1" "$2" "$package/$3"; }
put_development() { install -D -m "$1" "$2" "$development/$3"; }

put 755 "$binary" usr/bin/srd
strip --strip-unneeded --remove-section=.comment "$package/usr/bin/srd"
put 644 "$here/srd@.service" lib/systemd/system/srd@.service
put 644 "$here/srd-nfs-proxy@.service" lib/systemd/system/srd-nfs-proxy@.service
put 644 "$here/srd-nfs-proxy@.socket" lib/systemd/system/srd-nfs-proxy@.socket
put 755 "$here/mount.srd-nfs" sbin/mount.srd-nfs
ln -s mount.srd-nfs "$package/sbin/umount.srd-nfs"
put 644 "$here/cloud.conf" usr/share/srd/cloud.conf
put 644 "$here/card.conf" usr/share/srd/card.conf
put 644 "$here/srd-check.service" lib/systemd/system/srd-check.service
put 644 "$here/srd0.toml.example" etc/srd/srd0.toml.example
# Container runtimes start a plugin by its name.
install -d "$package/usr/lib/cni"
ln -s ../../bin/srd "$package/usr/lib/cni/srd-cni"

objects=("$package/usr/bin/srd")
if [ -n "$libraries" ]; then
    capi=$root/crates/srd-capi
    triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null || cc -print-multiarch)
    put 644 "$libraries/libsrd.so" "usr/lib/$triplet/libsrd.so.$version"
    put_development 644 "$libraries/libsrd.a" "usr/lib/$triplet/libsrd.a"
    strip --strip-unneeded --remove-section=.comment "$package/usr/lib/$triplet/libsrd.so.$version"
    strip --strip-debug --enable-deterministic-archives "$development/usr/lib/$triplet/libsrd.a"
    ln -s "libsrd.so.$version" "$package/usr/lib/$triplet/libsrd.so.0"
    ln -s libsrd.so.0 "$development/usr/lib/$triplet/libsrd.so"
    objects+=("$package/usr/lib/$triplet/libsrd.so.$version")
    # The provider has the name that libfabric looks for, but is not in a directory that libfabric
    # searches by default: other programs of a machine are not affected, and users of MPI name the
    # directory in FI_PROVIDER_PATH. The same applies to NCCL's plugin, which NCCL finds in
    # LD_LIBRARY_PATH.
    for plugin in libsrd_fi.so:libsrd-fi.so libnccl_net_srd.so:libnccl-net-srd.so; do
        to=usr/lib/srd/${plugin#*:}
        put 644 "$libraries/${plugin%%:*}" "$to"
        strip --strip-unneeded --remove-section=.comment "$package/$to"
        objects+=("$package/$to")
    done
    put_development 644 "$capi/include/srd.h" usr/include/srd.h
    put_development 644 "$capi/examples/pingpong.c" usr/share/doc/libsrd-dev/examples/pingpong.c
    install -d "$development/usr/lib/$triplet/pkgconfig" "$development/usr/share/man/man3"
    sed "s/@VERSION@/$version/; s,@LIBDIR@,\${prefix}/lib/$triplet," "$here/srd.pc.in" \
        >"$development/usr/lib/$triplet/pkgconfig/srd.pc"
    sed "s/@VERSION@/$version/" "$here/srd.3" >"$development/usr/share/man/man3/srd.3"
    gzip -9n "$development"/usr/share/man/man3/*
    install -d "$control"
    echo "activate-noawait ldconfig" >"$control/triggers"
    # Programs in other packages that are linked with it depend on this package.
    echo "libsrd 0 srd (>= $version)" >"$control/shlibs"
    # The library has no separate package: programs that use it also use the program.
    install -d "$package/usr/share/lintian/overrides"
    echo "srd: package-name-doesnt-match-sonames libsrd0" >"$package/usr/share/lintian/overrides/srd"
fi

"$binary" man "$package/usr/share/man/man1"
install -d "$package/usr/share/man/man5" "$package/usr/share/man/man7"
mv "$package"/usr/share/man/man1/*.5 "$package/usr/share/man/man5/"
mv "$package"/usr/share/man/man1/*.7 "$package/usr/share/man/man7/"
for page in "$here"/*.[58]; do
    section=$package/usr/share/man/man${page##*.}
    install -d "$section"
    sed "s/@VERSION@/$version/" "$page" >"$section/${page##*/}"
done
gzip -9n "$package"/usr/share/man/man?/*
ln -s mount.srd-nfs.8.gz "$package/usr/share/man/man8/umount.srd-nfs.8.gz"

completions() {
    install -d "$package/$(dirname "$2")"
    "$binary" completions "$1" >"$package/$2"
}
completions bash usr/share/bash-completion/completions/srd
completions zsh usr/share/zsh/vendor-completions/_srd
completions fish usr/share/fish/vendor_completions.d/srd.fish

doc=usr/share/doc/srd
put 644 "$here/copyright" $doc/copyright
for file in README.md ARCHITECTURE.md STYLE.md; do put 644 "$root/$file" "$doc/$file"; done
ln -s /usr/share/common-licenses/Apache-2.0 "$package/$doc/LICENSE"
# All documents, the figures in them, and the examples that they name.
(cd "$root" && find docs -type f) | while read -r file; do
    put 644 "$root/$file" "$doc/$file"
done
(cd "$root" && find scenarios -name '*.toml') | while read -r file; do
    put 644 "$root/$file" "$doc/examples/$file"
done
for file in grafana/srd.json prometheus/srd.rules.yml srd0.toml.example cni/10-srd.conflist.example; do
    put 644 "$here/$file" "$doc/examples/$file"
done
# Documents name these files by their path in the sources.
ln -s examples/scenarios "$package/$doc/scenarios"
ln -s examples "$package/$doc/packaging"
when=$(LC_ALL=C date -uR -d "@$epoch")
gzip -9nc >"$package/$doc/changelog.gz" <<TEXT
srd ($version) unstable; urgency=medium

  * See README.md for what is supported.

 -- $maintainer  $when
TEXT

# Prints the libraries that an object is linked with, and the C library version that its calls need.
depends() {
    local needed glibc
    needed=$(objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }')
    glibc=$(objdump -T "$1" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n1)
    for library in $needed; do
        case $library in
        libc.so.6 | libm.so.6 | ld-linux*.so.*) echo "libc6 (>= ${glibc#GLIBC_})" ;;
        libgcc_s.so.1) echo "libgcc-s1 (>= 4.2)" ;;
        *) echo "no package is known for $library: name it in packaging/deb.sh" >&2 && return 1 ;;
        esac
    done | sort -u
}
needs=$(for object in "${objects[@]}"; do depends "$object"; done | sort -u | paste -sd, | sed 's/,/, /g')

install -d "$control"
for script in postinst prerm postrm; do install -m 755 "$here/$script" "$control/$script"; done
(cd "$package" && find etc -type f -printf '/%p\n') >"$control/conffiles"
sums() { (cd "$1" && find "${@:2}" -type f -print0 | sort -z | xargs -0 md5sum) >"$1/DEBIAN/md5sums"; }
sums "$package" usr lib sbin
cat >"$control/control" <<TEXT
Package: srd
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$package" | cut -f1)
Depends: $needs, adduser, iproute2
Recommends: ethtool
Suggests: nftables
Section: net
Priority: optional
${homepage}Description: reliable datagrams over every path of a network
 A TCP connection uses one path of a datacenter network. This package contains
 ENA Express in software: an interface whose packets use many paths at once, are
 retransmitted when they get lost, and are delivered in order, for unchanged
 programs.
 .
 In addition, the command srd measures the transport between machines, builds a
 small datacenter of network namespaces, simulates large ones, and checks the
 settings of a system that matter for ENA Express.
TEXT

build() {
    local file=$out/$2_${version}_${3:-$architecture}.deb
    dpkg-deb --root-owner-group -Z"$compression" --build "$1" "$file" >/dev/null
    echo "$file"
}
mkdir -p "$out"
build "$package" srd
[ -n "$libraries" ] || exit 0

put_development 644 "$here/copyright" usr/share/doc/libsrd-dev/copyright
put_development 644 "$package/$doc/changelog.gz" usr/share/doc/libsrd-dev/changelog.gz
install -d "$development/DEBIAN"
sums "$development" usr
cat >"$development/DEBIAN/control" <<TEXT
Package: libsrd-dev
Source: srd
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$development" | cut -f1)
Depends: srd (= $version)
Section: libdevel
Priority: optional
${homepage}Description: reliable datagrams over every path of a network, for programs in C
 The header, the static library, the manual and an example of libsrd: messages of
 any length and remote memory over many paths at once, for your own programs.
TEXT
build "$development" libsrd-dev

[ -n "$book" ] || exit 0
pages=$stage/srd-doc
install -d "$pages/DEBIAN" "$pages/usr/share/doc/srd-doc"
"$here/book/book.sh" --binary "$binary" --out "$pages/usr/share/doc/srd-doc/html" >/dev/null
install -m 644 "$here/copyright" "$pages/usr/share/doc/srd-doc/copyright"
install -m 644 "$package/$doc/changelog.gz" "$pages/usr/share/doc/srd-doc/changelog.gz"
sums "$pages" usr
cat >"$pages/DEBIAN/control" <<TEXT
Package: srd-doc
Source: srd
Version: $version
Architecture: all
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$pages" | cut -f1)
Section: doc
Priority: optional
${homepage}Description: reliable datagrams over every path of a network, the book
 All documents of OpenSRD and the manual of every command as HTML: guides,
 reference, specifications, and the journal of measurements. A browser reads them
 at /usr/share/doc/srd-doc/html/index.html.
TEXT
build "$pages" srd-doc all
