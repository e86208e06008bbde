# SPDX-License-Identifier: Apache-2.0
# Installation: files and places, find_package(cuvmm), pkg-config, and the target `uninstall`.
include(CMakePackageConfigHelpers)
# Two components, which become the two packages: one to run programs, one to build them.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME cuvmm)
set(CUVMM_DEVELOPMENT cuvmm_dev)
set(CUVMM_INSTALL_SIM "${CMAKE_INSTALL_LIBDIR}/cuvmm/sim")
set(CUVMM_INSTALL_PACKAGE "${CMAKE_INSTALL_LIBDIR}/cmake/cuvmm")

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/cuvmm" "${PROJECT_BINARY_DIR}/include/cuvmm"
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT ${CUVMM_DEVELOPMENT}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

add_library(cuvmm_headers INTERFACE)
target_include_directories(cuvmm_headers INTERFACE
  "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include;${PROJECT_BINARY_DIR}/include>"
  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
set_target_properties(cuvmm_headers PROPERTIES EXPORT_NAME headers)
install(TARGETS cuvmm_headers EXPORT cuvmmTargets)

# In a folder of its own and without the link name libcuda.so, so that nothing finds it by accident.
install(TARGETS cuvmm_sim cuvmm_sim_nvml LIBRARY DESTINATION "${CUVMM_INSTALL_SIM}" NAMELINK_SKIP)

set(CUVMM_PC_LIBS "")
if(TARGET cuvmm)
  install(TARGETS cuvmm EXPORT cuvmmTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    NAMELINK_COMPONENT ${CUVMM_DEVELOPMENT})
  target_link_libraries(cuvmm INTERFACE cuvmm_headers)
  # The C++ headers need C++20; a C-only project is not affected.
  target_compile_features(cuvmm INTERFACE cxx_std_20)
  set(CUVMM_PC_LIBS "-L\${libdir} -lcuvmm")
endif()
foreach(loaded cuvmm_preload cuvmm_stub)
  if(TARGET ${loaded})
    install(TARGETS ${loaded} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()
foreach(program cuvmm_cli cuvmmd)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  endif()
endforeach()

# systemd units, where packages install them. They refer to /usr/bin.
install(FILES "${PROJECT_SOURCE_DIR}/src/daemon/systemd/cuvmmd.service"
              "${PROJECT_SOURCE_DIR}/src/daemon/systemd/cuvmmd.socket"
  DESTINATION "lib/systemd/system")

# The Python package, which `cuvmm plot` also uses. The system's Python looks for packages in a
# folder of its own, so an installation in /usr has a link there.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/python/cuvmm" DESTINATION "${CMAKE_INSTALL_DATADIR}/cuvmm/python"
  FILES_MATCHING PATTERN "*.py" PATTERN "page.*" PATTERN "flames.js" PATTERN "py.typed" PATTERN "__pycache__" EXCLUDE)
set(python_link "${PROJECT_BINARY_DIR}/packaging/python/cuvmm")
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/packaging/python")
file(CREATE_LINK "../../../${CMAKE_INSTALL_DATADIR}/cuvmm/python/cuvmm" "${python_link}" SYMBOLIC)
install(CODE "
  if(CMAKE_INSTALL_PREFIX STREQUAL \"/usr\")
    file(INSTALL \"${python_link}\" DESTINATION \"/usr/lib/python3/dist-packages\")
  endif()")

# Completions and manuals, if the build generated them.
get_property(generated GLOBAL PROPERTY CUVMM_GENERATED)
if(generated)
  install(FILES "${generated}/cuvmm.bash" RENAME cuvmm OPTIONAL
    DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions")
  install(FILES "${generated}/_cuvmm" OPTIONAL
    DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions")
  install(FILES "${generated}/cuvmm.fish" OPTIONAL
    DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
  install(DIRECTORY "${generated}/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1"
    FILES_MATCHING PATTERN "*.1")
  install(FILES "${generated}/cuvmmd.8" OPTIONAL DESTINATION "${CMAKE_INSTALL_MANDIR}/man8")
endif()

set(packaging "${PROJECT_BINARY_DIR}/packaging")
install(EXPORT cuvmmTargets NAMESPACE cuvmm:: DESTINATION "${CUVMM_INSTALL_PACKAGE}"
  COMPONENT ${CUVMM_DEVELOPMENT})
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/cuvmmConfig.cmake.in"
  "${packaging}/cuvmmConfig.cmake"
  INSTALL_DESTINATION "${CUVMM_INSTALL_PACKAGE}" PATH_VARS CUVMM_INSTALL_SIM)
write_basic_package_version_file("${packaging}/cuvmmConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${packaging}/cuvmmConfig.cmake" "${packaging}/cuvmmConfigVersion.cmake"
  DESTINATION "${CUVMM_INSTALL_PACKAGE}" COMPONENT ${CUVMM_DEVELOPMENT})

file(RELATIVE_PATH CUVMM_PC_TO_PREFIX
  "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
string(REGEX REPLACE "/$" "" CUVMM_PC_TO_PREFIX "${CUVMM_PC_TO_PREFIX}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/cuvmm.pc.in" "${packaging}/cuvmm.pc" @ONLY)
install(FILES "${packaging}/cuvmm.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
  COMPONENT ${CUVMM_DEVELOPMENT})

install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/cuvmm")
set(doc "${CMAKE_INSTALL_DATADIR}/doc/cuvmm")
file(RELATIVE_PATH doc_to_include "/prefix/${doc}" "/prefix/${CMAKE_INSTALL_INCLUDEDIR}")
install(CODE "
  set(CUVMM_SOURCE \"${PROJECT_SOURCE_DIR}\")
  set(CUVMM_STAGED_DOCS \"${PROJECT_BINARY_DIR}/packaging/doc\")
  set(CUVMM_DOC \"${doc}\")
  set(CUVMM_DOC_TO_INCLUDE \"${doc_to_include}\")")
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/CuvmmInstallDocs.cmake")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/libcuvmm-dev"
  COMPONENT ${CUVMM_DEVELOPMENT})

add_custom_target(uninstall VERBATIM
  COMMAND "${CMAKE_COMMAND}" "-DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt"
          -P "${PROJECT_SOURCE_DIR}/cmake/CuvmmUninstall.cmake")
include(CuvmmPackage)
