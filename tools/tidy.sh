# SPDX-License-Identifier: Apache-2.0
# ./dev tidy [FILE…]: clang-tidy 14 over what is compiled, or over the files named. A file that
# passed is not looked at again until it, a header of the project or the checks change.
mkdir -p build/tidy
given=$(cat .clang-tidy tools/tidy.sh
  find src include tests bench examples -type f \( -name '*.hpp' -o -name '*.h' -o -name '*.def' \) -print0 |
    sort -z | xargs -0 cat)
given=$(sha256sum <<<"$given")

# Following every path through a program takes most of the time. In src up to a bound, and not at
# all in the tests, which the sanitizers see run.
depth_of() {  # FILE: options, a line each
  case $1 in
    tests/* | bench/*) printf -- '--checks=-clang-analyzer-*,-performance-*' ;;
    *) printf -- '--extra-arg=%s\n' -Xclang -analyzer-config -Xclang max-nodes=30000 ;;
  esac
}

tidy_one() {  # FILE HASH
  local hash stamp depth
  hash=$({ echo "$2"; cat "$1"; } | sha256sum | cut -c1-24)
  stamp=build/tidy/$(tr / . <<<"$1").$hash
  [[ ! -e $stamp ]] || return 0
  mapfile -t depth < <(depth_of "$1")
  clang-tidy-14 -p build --quiet "${depth[@]}" "$1" 2> >(grep -v ' warnings\? generated\|^Suppressed\|^Use -header' >&2) || return 1
  rm -f "build/tidy/$(tr / . <<<"$1")".*
  touch "$stamp"
}
export -f depth_of tidy_one

# Only what the build compiles has flags that clang-tidy could use.
if (($# > 0)); then
  files=("$@")
else
  mapfile -t files < <(sed -n 's/^ *"file": "\(.*\)",\?$/\1/p' build/compile_commands.json |
    sed "s|^$root/||" | grep -E '^(src|tests|bench|examples)/.*\.cpp$' | sort -u)
fi
((${#files[@]} > 0)) || exit 0
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(jobs_here)" bash -c 'tidy_one "$1" "$0"' "$given"
