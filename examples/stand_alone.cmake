# SPDX-License-Identifier: Apache-2.0
# Builds the C++ examples against an installed cuvmm:
#
#   cmake -S . -B /tmp/examples -DCMAKE_PREFIX_PATH=PREFIX && cmake --build /tmp/examples
#
# This needs cuda.h, but no driver. If CMake does not find it, add -DCUVMM_CUDA_INCLUDE=FOLDER. Each
# .cu file says how nvcc builds it.
cmake_minimum_required(VERSION 3.22)
project(cuvmm_examples LANGUAGES CXX)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(cuvmm REQUIRED)
find_package(Threads REQUIRED)
find_path(CUVMM_CUDA_INCLUDE cuda.h HINTS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include REQUIRED
  DOC "folder with cuda.h")

# Only the examples that call libcuvmm depend on it.
add_link_options(-Wl,--as-needed)
# The simulated driver finds a program's kernels among its exported symbols (cuvmm/sim.h).
set(CMAKE_ENABLE_EXPORTS ON)

file(GLOB sources "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
foreach(source IN LISTS sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} "${source}")
  target_include_directories(${name} SYSTEM PRIVATE "${CUVMM_CUDA_INCLUDE}")
  target_link_libraries(${name} PRIVATE cuvmm::cuvmm Threads::Threads ${CMAKE_DL_LIBS})
endforeach()
