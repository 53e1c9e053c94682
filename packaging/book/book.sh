#!/usr/bin/env bash
# Builds the book: all documents of the project, and a page for every command and every file that
# users write, as HTML that needs no network.
#
#   packaging/book/book.sh [--binary FILE] [--out DIR]
#   packaging/book/book.sh fetch
#
# --binary  an existing program; otherwise cargo builds one
# --out     the directory of the book [default: the target directory, book]
# fetch     only installs Material for MkDocs, in the target directory; a build does so as well
#
# A browser reads the book from the directory; search needs a server, as
# `python3 -m http.server --directory target/book`.
#
# The order of the book is that of docs/README.md. Pages of commands come from `srd man`. Fails if a
# page, a link or an anchor is missing.
#
# Material for MkDocs is maintained until May 2027; its successor reads the same configuration.
#
# Needs mandoc, and Python with the module venv.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

usage='usage: packaging/book/book.sh [--binary FILE] [--out DIR] | fetch'
binary='' out=$target/book only_fetch=''
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) echo "$usage" && exit 0 ;;
    --binary | --out)
        [ $# -gt 1 ] || { echo "$usage" >&2 && exit 2; }
        declare "${1#--}=$2"
        shift 2
        ;;
    fetch) only_fetch=1 && shift ;;
    *) echo "$usage" >&2 && exit 2 ;;
    esac
done
for program in mandoc python3; do
    command -v "$program" >/dev/null && continue
    echo "$program is not installed: apt-get install mandoc python3-venv" >&2
    exit 3
done
tools=$target/book-tools
if [ ! -x "$tools/bin/mkdocs" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --no-compile --disable-pip-version-check 'mkdocs-material~=9.7'
fi
[ -z "$only_fetch" ] || exit 0
if [ -z "$binary" ]; then
    (cd "$root" && cargo build --profile quick --locked --package srd-cli)
    binary=$target/quick/srd
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir "$stage/pages"
# Files keep their paths, so that links between them hold.
(cd "$root" && cp -r --parents -t "$stage/pages" README.md ARCHITECTURE.md STYLE.md docs scenarios)
"$binary" man "$stage/man"
cp "$here"/../*.[1-8] "$stage/man/"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH NO_MKDOCS_2_WARNING=1
version=$("$binary" --version | cut -d' ' -f2)
python3 "$here/pages.py" "$root" "$stage" "$version" >"$stage/mkdocs.yml"
rm -rf "$out"
if ! "$tools/bin/mkdocs" build --strict --config-file "$stage/mkdocs.yml" --site-dir "$(realpath -m "$out")" \
    >"$stage/log" 2>&1; then
    grep -v '^INFO' "$stage/log" >&2
    exit 1
fi
if grep -rlE '<(script|img|iframe)[^>]* src="?(https?:)?//' "$out" --include='*.html'; then
    echo "these pages load from other servers" >&2
    exit 1
fi
echo "$out/index.html"
