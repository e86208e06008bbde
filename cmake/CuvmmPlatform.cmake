# SPDX-License-Identifier: Apache-2.0
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux" OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
  message(FATAL_ERROR "cuvmm runs on Linux x86_64 only; this is ${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}.")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "cuvmm needs g++ 11 or newer; this is ${CMAKE_CXX_COMPILER_VERSION}.")
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(CUVMM_CCACHE ccache)
  if(CUVMM_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CUVMM_CCACHE}")
  endif()
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# Line numbers are enough for a stack trace. All of -g makes programs ten times as large, too large
# to carry to a machine with a card. The debug build has all of it.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -gz -DNDEBUG")
# Symbols of the simulated driver are made by assembler lines that link-time optimisation drops.
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
# Apart from lib, so that bin and lib hold what runs and nothing more.
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/archives")
# Programs find the libraries beside them wherever the build is carried to.
set(CMAKE_INSTALL_RPATH "\$ORIGIN/../lib")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
if(NOT DEFINED CMAKE_INSTALL_LIBDIR)
  set(CMAKE_INSTALL_LIBDIR lib)   # the simulated driver is at PREFIX/lib/cuvmm/sim everywhere
endif()
include(GNUInstallDirs)
# In no default search path and no RUNPATH, so that it never shadows a real driver.
set(CUVMM_SIM_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/cuvmm/sim")

set(CUVMM_SANITIZE "" CACHE STRING "address (with undefined) or thread")
add_library(cuvmm_compile INTERFACE)
target_compile_options(cuvmm_compile INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers -fno-strict-aliasing)
# Libraries that are loaded later take their few thread-local bytes from the room that the loader
# keeps for that. Else the loader allocates them at a thread's first touch, inside any call of ours,
# and frees them where ThreadSanitizer sees a race with the thread's last touch.
target_compile_options(cuvmm_compile INTERFACE -ftls-model=initial-exec)
# The preload library leaves out what only tests, the command line and the other side of a
# conversation use.
target_compile_options(cuvmm_compile INTERFACE -ffunction-sections -fdata-sections)
# What every program that is preloaded carries with it, but is none of what a call costs: made small.
# Such files are compiled by themselves, whatever CUVMM_TOGETHER says.
option(CUVMM_SMALL "make small what is seldom called" ON)
function(cuvmm_made_small)  # SOURCE…
  if(CUVMM_SMALL AND NOT CUVMM_SANITIZE)
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-Os>")
  endif()
endfunction()
# A C caller may pass any number as an enum, and the driver has to answer it.
if(CUVMM_SANITIZE STREQUAL "address")
  set(CUVMM_SANITIZER_FLAGS -fsanitize=address,undefined -fno-sanitize=enum -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
elseif(CUVMM_SANITIZE STREQUAL "thread")
  set(CUVMM_SANITIZER_FLAGS -fsanitize=thread -fno-omit-frame-pointer)
endif()
option(CUVMM_FUZZ "build the fuzz targets for libFuzzer (clang)" OFF)
if(CUVMM_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "CUVMM_FUZZ needs clang, for its libFuzzer; this is ${CMAKE_CXX_COMPILER_ID}.")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(CUVMM_SANITIZER_FLAGS)
  # Lock orders and invariants are checked wherever sanitizers look. Less optimised and with lines
  # alone as debug information, since these builds are made to be run once: it halves their time.
  add_compile_options(${CUVMM_SANITIZER_FLAGS} -UNDEBUG -O1 -g1)
  add_link_options(${CUVMM_SANITIZER_FLAGS})
endif()
# What the sanitizers run, but are not there for. The checks left out double the time that tests take
# to compile, and what they would find there ends a test anyway.
function(cuvmm_checked_less target)
  if(CUVMM_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,vptr,object-size)
  endif()
endfunction()
find_package(Threads REQUIRED)

# #include "cuvmm/version.h"
configure_file("${PROJECT_SOURCE_DIR}/cmake/version.h.in" "${PROJECT_BINARY_DIR}/include/cuvmm/version.h" @ONLY)
