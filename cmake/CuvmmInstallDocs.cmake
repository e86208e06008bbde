# SPDX-License-Identifier: Apache-2.0
# Runs at installation: installs README.md, SECURITY.md and docs/ into CUVMM_DOC. Links to files that
# are installed elsewhere are changed accordingly, and links to files that are not installed become
# plain text. CuvmmInstall.cmake sets the variables.
file(REMOVE_RECURSE "${CUVMM_STAGED_DOCS}")
file(COPY "${CUVMM_SOURCE}/README.md" "${CUVMM_SOURCE}/SECURITY.md" "${CUVMM_SOURCE}/docs"
  DESTINATION "${CUVMM_STAGED_DOCS}")
file(GLOB_RECURSE cuvmm_pages "${CUVMM_STAGED_DOCS}/*.md")
foreach(page IN LISTS cuvmm_pages)
  file(READ "${page}" text)
  string(REGEX REPLACE "\\[([^][]+)\\]\\((\\.\\./)*((bench|src|tests|tools)/|CONTRIBUTING)[^()]*\\)" "\\1" text "${text}")
  string(REGEX REPLACE "(\\]\\((\\.\\./)*)include/" "\\1${CUVMM_DOC_TO_INCLUDE}/" text "${text}")
  string(REGEX REPLACE "(\\]\\((\\.\\./)*)examples/monitoring" "\\1../../cuvmm/monitoring" text "${text}")
  string(REGEX REPLACE "(\\]\\((\\.\\./)*)examples([/)])" "\\1../libcuvmm-dev/examples\\3" text "${text}")
  file(WRITE "${page}" "${text}")
endforeach()
file(INSTALL "${CUVMM_STAGED_DOCS}/" DESTINATION "${CMAKE_INSTALL_PREFIX}/${CUVMM_DOC}")
