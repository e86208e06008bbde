# SPDX-License-Identifier: Apache-2.0
# How tests are added, and what they have in common.

# cuvmm_unsanitized_test(NAME WHY COMMAND...): a test that cannot run under a sanitizer; there it is
# skipped and says why.
function(cuvmm_unsanitized_test name why)
  if(NOT CUVMM_SANITIZE)
    add_test(NAME ${name} COMMAND ${ARGN})
    return()
  endif()
  add_test(NAME ${name} COMMAND "${CMAKE_COMMAND}" -E echo "skipped: ${name}: ${why}")
  set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
endfunction()

# cuvmm_sharded_test(NAME SHARDS COMMAND...): the cases of a long GoogleTest program in several tests,
# which start first and run side by side.
function(cuvmm_sharded_test name shards)
  math(EXPR last "${shards} - 1")
  foreach(shard RANGE ${last})
    math(EXPR number "${shard} + 1")
    add_test(NAME ${name}.${number} COMMAND ${ARGN})
    set_tests_properties(${name}.${number} PROPERTIES COST 100
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

# How much of the random tests a plain run does in the eager order of the simulated device, and in
# the others: one long run is enough.
function(cuvmm_test_share test order of_eager of_others)
  set(share ${of_others})
  if(order STREQUAL eager)
    set(share ${of_eager})
  endif()
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "CUVMM_TEST_SHARE=${share}")
endfunction()

# A test that fills and compares large vectors in turn. What it frees stays in its heap: on a virtual
# machine, the faults of fresh pages can take longer than the rest of the test.
function(cuvmm_keep_freed_pages test)
  set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
    "MALLOC_MMAP_THRESHOLD_=268435456;MALLOC_TRIM_THRESHOLD_=268435456")
endfunction()

# What holds for all tests of this directory; call it after the last one. Programs that can be paused,
# and a node's services, are found in the user's runtime folder: each test gets its own, so that no
# test pauses the programs of another that runs beside it. A test whose filter matches nothing fails.
function(cuvmm_finish_tests)
  get_property(tests DIRECTORY PROPERTY TESTS)
  foreach(test ${tests})
    string(REPLACE ":" "_" name "${test}")
    set(runtime "${CMAKE_BINARY_DIR}/tests/run/${name}")
    file(MAKE_DIRECTORY "${runtime}")
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT "XDG_RUNTIME_DIR=${runtime}")
    set_property(TEST ${test} APPEND PROPERTY FAIL_REGULAR_EXPRESSION "Running 0 tests from")
  endforeach()
endfunction()

# Tests of this directory that compute all the time count twice: `./dev test` runs more jobs than there
# are processors, since most of the others wait for programs or for time to pass.
function(cuvmm_count_what_computes)
  string(CONCAT computing "^(unit|spill|resize|pool|stress|contract|served|scheduled|schedule|order|"
    "hook_sim|node|matrix|install|packages|quick|cli\\.(plot|traces|readme))(\\.|$)")
  get_property(tests DIRECTORY PROPERTY TESTS)
  list(FILTER tests INCLUDE REGEX "${computing}")
  set_tests_properties(${tests} PROPERTIES PROCESSORS 2)
endfunction()
