# SPDX-License-Identifier: Apache-2.0
# Debian packages: cuvmm (to run programs) and libcuvmm-dev (to build them). `cpack` in the build
# folder creates them.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME cuvmm)
set(CPACK_PACKAGE_VENDOR "cuvmm")
set(CPACK_PACKAGE_CONTACT "cuvmm <cuvmm@localhost>")
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL cuvmm cuvmm_dev)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)  # by default the building machine's
endif()
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_CUVMM_PACKAGE_NAME cuvmm)
# The versions that the programs need of the libraries that they were linked to. Without the tool that
# finds them, those of the machine that builds.
find_program(CUVMM_SHLIBDEPS dpkg-shlibdeps)
if(CUVMM_SHLIBDEPS)
  set(CPACK_DEBIAN_CUVMM_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}/lib")
else()
  file(WRITE "${PROJECT_BINARY_DIR}/glibc.c" "#include <features.h>\nglibc __GLIBC__ __GLIBC_MINOR__\n")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -E -P "${PROJECT_BINARY_DIR}/glibc.c" OUTPUT_VARIABLE glibc)
  string(REGEX REPLACE ".*glibc ([0-9]+) ([0-9]+).*" "\\1.\\2" glibc "${glibc}")
  set(CPACK_DEBIAN_CUVMM_PACKAGE_DEPENDS "libc6 (>= ${glibc}), libstdc++6, zlib1g")
endif()
set(CPACK_DEBIAN_CUVMM_PACKAGE_RECOMMENDS "python3, python3-matplotlib")
set(CPACK_DEBIAN_CUVMM_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/cmake/debian/prerm")
set(CPACK_DEBIAN_CUVMM_DEV_PACKAGE_NAME libcuvmm-dev)
set(CPACK_DEBIAN_CUVMM_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_CUVMM_DEV_PACKAGE_DEPENDS "cuvmm (= ${PROJECT_VERSION})")
set(CPACK_COMPONENT_CUVMM_DESCRIPTION
"Separates CUDA addresses from the memory behind them
 The command line, the preload library, libcuvmm, and a simulated CUDA driver
 that lies in no library path.")
set(CPACK_COMPONENT_CUVMM_DEV_DESCRIPTION
"Headers and build files of libcuvmm
 For programs that use cuvmm's pools and sharing by its C or C++ API.")
include(CPack)
