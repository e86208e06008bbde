# SPDX-License-Identifier: Apache-2.0
# Finds cuda.h and cudaTypedefs.h of CUDA 13.0 or newer in CUDA_HOME, an installed toolkit, or the
# files fetched by ./dev, in this order. Also a script, so that ./dev decides by the same rule:
# cmake -P prints the folder, or fails if there is none. CUVMM_IGNORE_TOOLKIT=1 in the environment
# leaves only the files fetched by ./dev.
get_filename_component(CUVMM_ROOT "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)

function(cuvmm_cuda_version directory result)
  set(${result} 0 PARENT_SCOPE)
  if(EXISTS "${directory}/cuda.h" AND EXISTS "${directory}/cudaTypedefs.h")
    file(STRINGS "${directory}/cuda.h" line REGEX "^#define CUDA_VERSION [0-9]+")
    if(line MATCHES "([0-9]+)")
      set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
    endif()
  endif()
endfunction()

function(cuvmm_find_cuda result)
  set(${result} "" PARENT_SCOPE)
  set(candidates)
  if(NOT "$ENV{CUVMM_IGNORE_TOOLKIT}")
    file(GLOB installed "/usr/local/cuda-1[3-9]*/include")
    set(candidates "$ENV{CUDA_HOME}/include" "/usr/local/cuda/include" ${installed} "/usr/include")
  endif()
  file(GLOB fetched "${CUVMM_ROOT}/.venv/lib/python3*/site-packages/nvidia/cu13/include")
  foreach(candidate IN LISTS candidates fetched)
    cuvmm_cuda_version("${candidate}" version)
    if(version GREATER_EQUAL 13000)
      set(${result} "${candidate}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  cuvmm_find_cuda(found)
  if(NOT found)
    message(FATAL_ERROR "no cuda.h of CUDA 13.0 or newer")
  endif()
  execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${found}")
endif()
