# SPDX-License-Identifier: Apache-2.0
# toml++/toml.h where the system has no package of it: the headers that ./dev fetched.
find_path(CUVMM_TOML_INCLUDE toml++/toml.h PATHS "${PROJECT_SOURCE_DIR}/.venv/toml/include")
if(CUVMM_TOML_INCLUDE MATCHES "/\\.venv/toml/include$")
  include_directories(SYSTEM "${CUVMM_TOML_INCLUDE}")
endif()
