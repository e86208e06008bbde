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
set(CPACK_DEBIAN_CUVMM_PACKAGE_DEPENDS "libc6 (>= 2.31), libstdc++6, zlib1g")
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
