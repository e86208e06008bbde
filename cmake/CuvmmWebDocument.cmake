# SPDX-License-Identifier: Apache-2.0
# The live view is one document: the style and the scripts are embedded in it, and it is embedded in
# cuvmm_observe.
set(web "${PROJECT_SOURCE_DIR}/src/observe/web")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  "${web}/node.html" "${web}/node.css" "${web}/node.js" "${web}/charts.js")
file(READ "${web}/node.css" WEB_STYLE)
file(READ "${web}/charts.js" WEB_CHARTS)
file(READ "${web}/node.js" WEB_SCRIPT)
configure_file("${web}/node.html" "${PROJECT_BINARY_DIR}/generated/node.html" @ONLY)
file(READ "${PROJECT_BINARY_DIR}/generated/node.html" WEB_DOCUMENT)
# Compilers may limit the length of string literals.
string(LENGTH "${WEB_DOCUMENT}" length)
set(WEB_LITERALS "")
foreach(begin RANGE 0 ${length} 8000)
  string(SUBSTRING "${WEB_DOCUMENT}" ${begin} 8000 piece)
  string(APPEND WEB_LITERALS "R\"cuvmm(${piece})cuvmm\"\n")
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/web_document.cpp.in"
  "${PROJECT_BINARY_DIR}/generated/web_document.cpp" @ONLY)
target_sources(cuvmm_observe PRIVATE "${PROJECT_BINARY_DIR}/generated/web_document.cpp")
