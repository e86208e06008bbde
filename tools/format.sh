# SPDX-License-Identifier: Apache-2.0
# ./dev format: runs clang-format 14, which defines the project's format, on all C and C++ sources.
options=(-i)
if [[ ${1:-} == --check ]]; then options=(--dry-run --Werror); fi
find src include tests bench examples -type f \
  \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.c' \) -print0 |
  xargs -0 -n 16 -P "$(jobs_here)" clang-format-14 "${options[@]}"
