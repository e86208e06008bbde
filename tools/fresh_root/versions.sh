# SPDX-License-Identifier: Apache-2.0
# In the root that builds: the system, and what ./dev found or installed.
. /etc/os-release
printf '%s; g++ %s, CMake %s, Python %s, glibc %s\n' "$PRETTY_NAME" "$(g++ -dumpfullversion)" \
  "$(cmake --version | sed -n '1s/.* //p')" "$(python3 -c 'import platform; print(platform.python_version())')" \
  "$(ldd --version | sed -n '1s/.* //p')"
