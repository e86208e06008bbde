# SPDX-License-Identifier: Apache-2.0
# Configures, builds and tests one preset. Sourced by dev after setup.sh.

configure() {  # PRESET
  local folder options=()
  folder=$(build_folder "$1")
  [[ ! -e $folder/build.ninja ]] || return 0   # ninja reconfigures by itself if necessary
  [[ -z ${CUVMM_CUDA_INCLUDE:-} ]] || options+=("-DCUVMM_CUDA_INCLUDE=$CUVMM_CUDA_INCLUDE")
  # A build folder copied from elsewhere cannot be reconfigured.
  rm -f "$folder/CMakeCache.txt"
  cmake --preset "$1" "${options[@]}" >&2
}

build_preset() {  # PRESET [TARGET…]
  case $1 in
    release | debug | asan | tsan) ;;
    *) say "there is no preset '$1': release, debug, asan, tsan"; exit 2 ;;
  esac
  ensure_build_needs
  configure "$1"
  local targets=("${@:2}")
  ((${#targets[@]} == 0)) || targets=(--target "${targets[@]}")
  cmake --build --preset "$1" -j "$(jobs_here)" "${targets[@]}" >&2
  mark_build "$(build_folder "$1")"
}

mark_build() {  # FOLDER: adds its commit, its sources, and the shared libraries that other machines may lack
  local program library
  mkdir -p "$1/lib/cuvmm"
  commit_here >"$1/lib/cuvmm/commit"
  sources_here >"$1/lib/cuvmm/sources"
  for program in "$1"/bin/*; do
    [[ -f $program ]] || continue
    while read -r library; do
      [[ -e $1/lib/${library##*/} ]] || cp -L "$library" "$1/lib/"
    done < <(ldd "$program" | sed -nE 's/.* => (.*lib(benchmark|fmt)\.so[^ ]*) .*/\1/p')
  done
}

# The presets define the sanitizers' settings and how much random tests are shortened.
run_tests() {  # PRESET
  ensure_packages "$build_needs"
  ensure_runtimes
  ensure_interposers
  ensure_kubernetes_needs "$1"
  ensure_clusters
  build_preset "$1"
  ensure_test_needs
  local launcher=env
  if [[ $1 == tsan ]]; then launcher=$(tsan_launcher "${CXX:-g++}"); fi
  local status=0
  # More jobs than there are processors, since many tests mostly wait; those that compute count as two
  # (cuvmm_count_what_computes). Under a sanitizer the tests need too much memory for that.
  local jobs=()
  if [[ $1 == release ]]; then jobs=(-j "$(($(nproc) < 6 ? $(nproc) + 6 : 12))"); fi
  # Tests start Python often. The one in .venv starts quickest: it has few packages, and is no wrapper
  # that first chooses a version.
  # shellcheck disable=SC2086
  PATH=$PWD/.venv/bin:$PATH tools/without_huge_pages.py $launcher ctest --preset "$1" "${jobs[@]}" || status=$?
  say_skipped "$(build_folder "$1")/Testing/Temporary/LastTest.log"
  ((status == 0)) || python3 -B tools/failed_tests.py "$(build_folder "$1")"
  return "$status"
}

# Prints one line per reason for skipped tests, since ctest reports none if tests pass.
say_skipped() {  # LOG of ctest
  awk '/^skipped: / { sub(/^skipped: /, ""); why[$0]++ }
       after_skip { why[$0]++; after_skip = 0 }
       /: Skipped$/ { after_skip = 1 }
       END { for (reason in why) printf "skipped: %d, %s\n", why[reason], reason }' "$1" | sort
}

# ThreadSanitizer gives up if the kernel randomizes more address bits than it supports
# (vm.mmap_rnd_bits). It also leaves few addresses to the simulated driver, which then finds some of
# them taken. So programs run without randomization if the machine allows it. Prints the prefix for
# commands.
tsan_launcher() {  # COMPILER
  local folder launcher
  folder=$(mktemp -d)
  echo 'int main() { return 0; }' >"$folder/trial.cpp"
  "$1" -fsanitize=thread "$folder/trial.cpp" -o "$folder/trial" ||
    die "$1 cannot build with ThreadSanitizer: is its libtsan installed?"
  for launcher in "setarch -R" env; do
    # Several times, since the addresses are drawn anew each time.
    # shellcheck disable=SC2086
    if (for _ in 1 2 3 4 5 6 7 8; do $launcher "$folder/trial" || exit 1; done) >/dev/null 2>&1; then
      echo "$launcher"
      rm -r "$folder"
      return
    fi
  done
  rm -r "$folder"
  die "ThreadSanitizer does not run here: lower vm.mmap_rnd_bits to 28"
}
