# SPDX-License-Identifier: Apache-2.0
# Programs and tests that call the CUDA runtime.

# For a card (tools/gpu_parts/runtime.sh). Built beside the other programs, so that it travels with
# them. The Python package has the runtime library and some of its headers.
find_path(CUVMM_RUNTIME_HEADERS crt/host_defines.h HINTS "${CUVMM_CUDA_INCLUDE}" NO_DEFAULT_PATH)
find_library(CUVMM_RUNTIME_STATIC libcudart_static.a
  HINTS "${CUVMM_CUDA_INCLUDE}/../lib64" "${CUVMM_CUDA_INCLUDE}/../lib" NO_DEFAULT_PATH)
find_file(CUVMM_RUNTIME_SHARED libcudart.so.13
  HINTS "${CUVMM_CUDA_INCLUDE}/../lib64" "${CUVMM_CUDA_INCLUDE}/../lib" NO_DEFAULT_PATH)
function(cuvmm_runtime_program name library)
  if(NOT library OR NOT CUVMM_RUNTIME_HEADERS)
    return()
  endif()
  add_executable(cuvmm_test_runtime_${name} programs/runtime_program.cpp)
  target_include_directories(cuvmm_test_runtime_${name} SYSTEM PRIVATE "${CUVMM_RUNTIME_HEADERS}")
  target_compile_definitions(cuvmm_test_runtime_${name} PRIVATE ${ARGN})
  target_link_libraries(cuvmm_test_runtime_${name} PRIVATE
    "${library}" Threads::Threads ${CMAKE_DL_LIBS} rt)
endfunction()
cuvmm_runtime_program(static "${CUVMM_RUNTIME_STATIC}")
cuvmm_runtime_program(static_per_thread "${CUVMM_RUNTIME_STATIC}" CUDA_API_PER_THREAD_DEFAULT_STREAM)
cuvmm_runtime_program(shared "${CUVMM_RUNTIME_SHARED}")
if(TARGET cuvmm_test_runtime_shared)
  add_custom_command(TARGET cuvmm_test_runtime_shared POST_BUILD COMMAND "${CMAKE_COMMAND}" -E copy_if_different
    "${CUVMM_RUNTIME_SHARED}" "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libcudart.so.13")
endif()

# The CUDA runtime on the simulated driver: the tests in runtime/, once for each installed runtime.
# They call nothing of cuvmm's, so that they build against any runtime's headers.
file(GLOB runtime_tests CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/runtime/*.cpp")
function(cuvmm_runtime_tests name headers library)
  if(CMAKE_CROSSCOMPILING OR NOT EXISTS "${library}" OR NOT EXISTS "${headers}/cuda_runtime_api.h" OR NOT CUVMM_CRT_HEADERS)
    add_test(NAME runtime.${name} COMMAND "${CMAKE_COMMAND}" -E echo
      "skipped: runtime.${name}: this runtime is not installed (./dev test installs it)")
    set_tests_properties(runtime.${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
    return()
  endif()
  if(CUVMM_SANITIZE)
    cuvmm_unsanitized_test(runtime.${name} "it loads the driver by itself, which a sanitizer's runtime must precede")
    return()
  endif()
  add_executable(cuvmm_runtime_${name}_tests ${runtime_tests})
  cuvmm_checked_less(cuvmm_runtime_${name}_tests)
  target_include_directories(cuvmm_runtime_${name}_tests PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_include_directories(cuvmm_runtime_${name}_tests SYSTEM PRIVATE "${headers}" "${CUVMM_CRT_HEADERS}")
  target_link_libraries(cuvmm_runtime_${name}_tests PRIVATE
    "${library}" cuvmm_compile lz4 zstd GTest::gtest GTest::gtest_main Threads::Threads ${CMAKE_DL_LIBS} rt)
  get_filename_component(folder "${library}" DIRECTORY)
  set_target_properties(cuvmm_runtime_${name}_tests PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/bin")
  add_dependencies(cuvmm_runtime_${name}_tests cuvmm_sim)
  foreach(order eager lazy random:1)
    add_test(NAME runtime.${name}.${order} COMMAND cuvmm_runtime_${name}_tests)
    set_tests_properties(runtime.${name}.${order} PROPERTIES ENVIRONMENT
      "VMM_SIM_ORDER=${order};VMM_SIM_DEVICES=2;LD_LIBRARY_PATH=${CUVMM_SIM_OUTPUT_DIRECTORY}:${folder}")
  endforeach()
  # The same tests as a program under cuvmm, which serves its memory.
  add_test(NAME runtime.${name}.served COMMAND
    $<TARGET_FILE:cuvmm_cli> run --sim=devices=2 --mode vmm -- $<TARGET_FILE:cuvmm_runtime_${name}_tests>)
  set_tests_properties(runtime.${name}.served PROPERTIES ENVIRONMENT "LD_LIBRARY_PATH=${folder}")
endfunction()
set(fetched_runtimes "${PROJECT_SOURCE_DIR}/.venv/runtimes")
set(runtime_11 "${fetched_runtimes}/nvidia-cuda-runtime-cu11-11.8.89/nvidia/cuda_runtime")
set(runtime_12 "${fetched_runtimes}/nvidia-cuda-runtime-cu12-12.9.79/nvidia/cuda_runtime")
set(runtime_13 "${fetched_runtimes}/nvidia-cuda-runtime-13.0.96/nvidia/cu13")
# The packages of runtimes 11 and 12 lack the headers in crt/. Those of 13 declare the same.
find_path(CUVMM_CRT_HEADERS crt/host_defines.h HINTS "${CUVMM_CUDA_INCLUDE}" "${runtime_13}/include" NO_DEFAULT_PATH)
cuvmm_runtime_tests(11 "${runtime_11}/include" "${runtime_11}/lib/libcudart.so.11.0")
cuvmm_runtime_tests(12 "${runtime_12}/include" "${runtime_12}/lib/libcudart.so.12")
cuvmm_runtime_tests(12_static "${runtime_12}/include" "${runtime_12}/lib/libcudart_static.a")
cuvmm_runtime_tests(13 "${runtime_13}/include" "${runtime_13}/lib/libcudart.so.13")
cuvmm_runtime_tests(toolkit_static "${CUVMM_RUNTIME_HEADERS}" "${CUVMM_RUNTIME_STATIC}")
