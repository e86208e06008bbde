# SPDX-License-Identifier: Apache-2.0
# Clean builds compile a dozen files at a time, since most of their time goes into headers that all
# of them include. The debug build, for editing, compiles each file separately. File-local names of
# a group share one translation unit, so if two clash, choose better names, or a header.
option(CUVMM_TOGETHER "compile a dozen source files at a time" OFF)

# cuvmm_together(TARGET): the grouping depends on file names alone, so that a new file joins one
# group and does not move others, until there are twice as many.
function(cuvmm_together target)
  if(NOT CUVMM_TOGETHER)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  set(groups 1)
  while(count GREATER 14)
    math(EXPR groups "${groups} * 2")
    math(EXPR count "${count} / 2")
  endwhile()
  foreach(source ${sources})
    get_filename_component(folder "${source}" DIRECTORY)
    get_filename_component(folder "${folder}" NAME)
    get_filename_component(name "${source}" NAME)
    string(MD5 hash "${folder}/${name}")
    string(SUBSTRING ${hash} 0 4 digits)
    math(EXPR group "0x${digits} % ${groups}")
    set_source_files_properties("${source}" PROPERTIES UNITY_GROUP group${group})
  endforeach()
  # What hides a name of another file hides nothing where each file is compiled separately.
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP
    UNITY_BUILD_CODE_BEFORE_INCLUDE "#pragma GCC diagnostic ignored \"-Wshadow\"")
endfunction()
