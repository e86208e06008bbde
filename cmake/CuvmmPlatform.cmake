# SPDX-License-Identifier: Apache-2.0
# CUVMM_FIRST_GLIBC is the version of glibc's first symbols, as in base/processor.h.
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
  set(CUVMM_FIRST_GLIBC GLIBC_2.2.5)
elseif(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CUVMM_FIRST_GLIBC GLIBC_2.17)
else()
  message(FATAL_ERROR "cuvmm runs on Linux, x86_64 or aarch64; this is ${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}.")
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
# Line numbers are enough for a stack trace. Full -g makes programs ten times as large, too large to
# copy to a machine with a card. The debug build has it.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g1 -gz -DNDEBUG")
# Assembler lines define the simulated driver's symbols; link-time optimisation would drop them.
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
# Apart from lib, so that bin and lib contain only files needed to run.
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/archives")
# Programs find the libraries relative to themselves, so that a build can be copied anywhere.
set(CMAKE_INSTALL_RPATH "\$ORIGIN/../lib")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
if(NOT DEFINED CMAKE_INSTALL_LIBDIR)
  set(CMAKE_INSTALL_LIBDIR lib)   # the simulated driver is at PREFIX/lib/cuvmm/sim everywhere
endif()
include(GNUInstallDirs)
# Outside all default search paths and RUNPATHs, so that it never shadows a real driver.
set(CUVMM_SIM_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib/cuvmm/sim")

set(CUVMM_SANITIZE "" CACHE STRING "address (with undefined) or thread")
add_library(cuvmm_compile INTERFACE)
target_compile_options(cuvmm_compile INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers -fno-strict-aliasing)
# There, GCC fuses multiplications and additions by default, which gives other numbers than x86_64 has.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  target_compile_options(cuvmm_compile INTERFACE -ffp-contract=off)
endif()
# Libraries loaded later take their few thread-local bytes from the loader's static reserve.
# Otherwise the loader would allocate them when a thread first touches them, inside any call of
# ours, and free them where ThreadSanitizer sees a race with the thread's last access.
target_compile_options(cuvmm_compile INTERFACE -ftls-model=initial-exec)
# Each program and library omits code that only others use.
target_compile_options(cuvmm_compile INTERFACE -ffunction-sections -fdata-sections)
target_link_options(cuvmm_compile INTERFACE "LINKER:--gc-sections")
# Code that is in every preloaded program but off the path of frequent calls is optimised for size.
option(CUVMM_SMALL "make small what is seldom called" ON)
# cuvmm_made_small(TARGET FOLDER [FAST file ...]): optimises the target for size, except for its FAST
# files, which are named without FOLDER and ".cpp". Those are compiled separately, whatever
# CUVMM_TOGETHER says.
function(cuvmm_made_small target folder)
  cmake_parse_arguments(arg "" "" "FAST" ${ARGN})
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM arg_FAST PREPEND "${folder}/")
  list(TRANSFORM arg_FAST APPEND ".cpp")
  foreach(file ${arg_FAST})
    if(NOT file IN_LIST sources)
      message(FATAL_ERROR "${target} has no ${file} to optimise for speed.")
    endif()
  endforeach()
  if(CUVMM_SMALL AND NOT CUVMM_SANITIZE)
    target_compile_options(${target} PRIVATE "$<$<NOT:$<CONFIG:Debug>>:-Os>")
    # Padding in front of jump targets would add 14 KB to the preload library.
    set_source_files_properties(${arg_FAST} PROPERTIES
      COMPILE_OPTIONS "$<$<NOT:$<CONFIG:Debug>>:-O2;-fno-align-jumps;-fno-align-labels>")
  endif()
endfunction()
# A C caller may pass any number as an enum, and the driver must handle it.
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
  # Lock orders and invariants are checked in all sanitized builds. These are built to run once, so
  # less optimisation and line numbers alone halve their time.
  add_compile_options(${CUVMM_SANITIZER_FLAGS} -UNDEBUG -O1 -g1)
  add_link_options(${CUVMM_SANITIZER_FLAGS})
endif()
# For code that runs under sanitizers but is not their subject. The omitted checks double the
# compile time of tests, and what they would find in a test makes it fail anyway. Optimising tests
# takes more time than it saves them under AddressSanitizer; ThreadSanitizer then checks each local
# variable.
function(cuvmm_checked_less target)
  if(CUVMM_SANITIZE STREQUAL "address")
    target_compile_options(${target} PRIVATE -fno-sanitize=null,alignment,vptr,object-size -O0)
  endif()
endfunction()
find_package(Threads REQUIRED)

# #include "cuvmm/version.h"
configure_file("${PROJECT_SOURCE_DIR}/cmake/version.h.in" "${PROJECT_BINARY_DIR}/include/cuvmm/version.h" @ONLY)
