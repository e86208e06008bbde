# SPDX-License-Identifier: Apache-2.0
# cuvmm_folder(NAME DEPENDS a b ... [SMALL [FAST file ...]]): builds the folder src/NAME as the
# static library cuvmm_NAME. It may include only its dependencies; tests/layout checks the includes
# themselves. SMALL: its files are optimised for size rather than speed, except for the FAST ones
# (cuvmm_made_small).
function(cuvmm_folder name)
  cmake_parse_arguments(arg "SMALL" "" "DEPENDS;FAST" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp")
  set(scope PRIVATE)
  if(sources)
    add_library(cuvmm_${name} STATIC ${sources})
    cuvmm_together(cuvmm_${name})
    target_link_libraries(cuvmm_${name} PUBLIC Threads::Threads ${CMAKE_DL_LIBS} PRIVATE cuvmm_compile)
    set(scope PUBLIC)
    if(arg_SMALL)
      cuvmm_made_small(cuvmm_${name} "${CMAKE_CURRENT_SOURCE_DIR}/${name}" FAST ${arg_FAST})
    endif()
  else()
    add_library(cuvmm_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(cuvmm_${name} ${scope}
    "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" "${PROJECT_BINARY_DIR}/include")
  foreach(dependency ${arg_DEPENDS})
    target_link_libraries(cuvmm_${name} ${scope} cuvmm_${dependency})
  endforeach()
endfunction()
