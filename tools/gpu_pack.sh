# SPDX-License-Identifier: Apache-2.0
# ./dev gpu-pack FILE: packs from build/ what ./dev gpu-test needs, without debug information, for a
# machine that has a card but cannot build. Unpack it in a checkout of the same commit: tar -xf FILE.
(($# == 1)) || { say "gpu-pack needs the name of the archive, such as build.tar.xz"; exit 2; }
file=$(cd "$called_from" && realpath -m "$1")
[[ -x build/bin/cuvmm_contract_tests ]] || die "nothing is built: run ./dev build first"
[[ $(sources_built) == "$(sources_here)" ]] || die "build/ is not of these sources: run ./dev build"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir -p "$copy/build"
cp -a build/bin build/lib "$copy/build/"
find "$copy/build" -name '*.a' -delete
while IFS= read -r -d '' each; do
  case $(head -c 4 "$each" | tr -d '\0') in $'\x7fELF') strip --strip-debug "$each" ;; esac
done < <(find "$copy/build" -type f -print0)
tar -C "$copy" --xz --create --file "$file" build
say "$file: $(du -h "$file" | cut -f1), sources $(sources_built)"
