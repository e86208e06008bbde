# SPDX-License-Identifier: Apache-2.0
# cuvmm_folder(NAME DEPENDS a b ... [SMALL regex [FAST regex]]): the folder src/NAME as the static library
# cuvmm_NAME. What it may include is what it depends on; tests/layout checks the includes themselves.
# Files whose names SMALL finds, and FAST does not, are made small rather than fast.
function(cuvmm_folder name)
  cmake_parse_arguments(arg "" "SMALL;FAST" "DEPENDS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.cpp")
  set(scope PRIVATE)
  if(sources)
    add_library(cuvmm_${name} STATIC ${sources})
    target_link_libraries(cuvmm_${name} PUBLIC Threads::Threads ${CMAKE_DL_LIBS} PRIVATE cuvmm_compile)
    set(scope PUBLIC)
    if(arg_SMALL)
      list(FILTER sources INCLUDE REGEX "/[^/]*(${arg_SMALL})[^/]*$")
      if(arg_FAST)
        list(FILTER sources EXCLUDE REGEX "/(${arg_FAST})[.]cpp$")
      endif()
      cuvmm_made_small(${sources})
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
