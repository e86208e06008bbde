# SPDX-License-Identifier: Apache-2.0
# ./dev format: clang-format 14, whose form is the project's, over every C and C++ source.
options=(-i)
if [[ ${1:-} == --check ]]; then options=(--dry-run --Werror); fi
find src include tests bench examples -type f \
  \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.c' \) -print0 |
  xargs -0 -n 16 -P "$(jobs_here)" clang-format-14 "${options[@]}"
