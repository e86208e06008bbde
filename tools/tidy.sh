# SPDX-License-Identifier: Apache-2.0
# ./dev tidy [FILE…]: runs clang-tidy 14 on all compiled files, or on the given ones. All files are
# checked a dozen at a time (cmake/CuvmmTogether.cmake), which takes a fifth of the time. Files that
# passed are not checked again until they, their includes from this project, or the checks change.
if (($# > 0)); then preset=debug; else preset=tidy; fi
configure "$preset"
tidy_folder=$(build_folder "$preset")
stamps=$tidy_folder/tidy
# Generated headers.
[[ ! -d $tidy_folder/src/kubernetes/generated ]] ||
  cmake --build "$tidy_folder" --target cuvmm_deviceplugin_files >/dev/null
mkdir -p "$stamps"
export tidy_folder stamps

# The analysis of paths takes most of the time. It is bounded in src and off in tests, which run
# under the sanitizers.
depth_of() {  # FILE: prints one option per line
  case ${1#build-tidy/} in
    tests/* | bench/*) printf -- '--checks=-bugprone-suspicious-include,-clang-analyzer-*,-performance-*' ;;
    *) printf -- '--checks=-bugprone-suspicious-include\n'
       printf -- '--extra-arg=%s\n' -Xclang -analyzer-config -Xclang max-nodes=30000 ;;
  esac
}

tidy_one() {  # FILE HASH
  local stamp depth
  stamp=$stamps/$(tr / . <<<"$1").$2
  [[ ! -e $stamp ]] || return 0
  mapfile -t depth < <(depth_of "$1")
  clang-tidy-14 -p "$tidy_folder" --quiet "${depth[@]}" "$1" 2> >(grep -v ' warnings\? generated\|^Suppressed\|^Use -header' >&2) || return 1
  rm -f "$stamps/$(tr / . <<<"$1")".*
  touch "$stamp"
}
export -f depth_of tidy_one

# Only compiled files have flags that clang-tidy can use.
if (($# > 0)); then
  files=("$@")
else
  mapfile -t files < <(sed -n 's/^ *"file": "\(.*\)",\?$/\1/p' "$tidy_folder/compile_commands.json" |
    sed "s|^$root/||" | grep -E '^(build-tidy/)?(src|tests|bench|examples)/.*\.(cpp|cxx)$' | sort -u)
fi
((${#files[@]} > 0)) || exit 0
checks=$(cat .clang-tidy tools/tidy.sh | sha256sum)
printf '%s\n' "${files[@]}" | python3 -B tools/include_hash.py "$checks" |
  xargs -n 2 -P "$(jobs_here)" bash -c 'tidy_one "$1" "$2"' tidy
(($# > 0)) || python3 -B tools/unused_functions.py
