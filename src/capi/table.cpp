// SPDX-License-Identifier: Apache-2.0
#include "capi/table.hpp"

namespace cuvmm::capi {

const Table& own_table() {
  static constexpr Table table{
      .size = sizeof(Table),
      .version = version_number,
#define CUVMM_CALL(returns, name, parameters, arguments, otherwise) .name = &capi::name,
#include "capi/api.def"
#undef CUVMM_CALL
  };
  return table;
}

}  // namespace cuvmm::capi
