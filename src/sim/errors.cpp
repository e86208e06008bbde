// SPDX-License-Identifier: Apache-2.0
#include "sim/errors.hpp"

#include <algorithm>
#include <iterator>

namespace cuvmm::sim {
namespace {

struct ErrorRow {
  CUresult error;
  const char* name;
  const char* text;
};

// Sorted by number, as in cuda.h.
constexpr ErrorRow rows[] = {
#define CUVMM_DRIVER_ERROR(name, text) {name, #name, text},
#include "driver/errors.def"
#undef CUVMM_DRIVER_ERROR
};

const ErrorRow* row_of(CUresult error) {
  const auto* found =
      std::lower_bound(std::begin(rows), std::end(rows), error,
                       [](const ErrorRow& row, CUresult wanted) { return row.error < wanted; });
  return found != std::end(rows) && found->error == error ? found : nullptr;
}

}  // namespace

const char* name_of(CUresult error) {
  const ErrorRow* row = row_of(error);
  return row != nullptr ? row->name : nullptr;
}

const char* text_of(CUresult error) {
  const ErrorRow* row = row_of(error);
  return row != nullptr ? row->text : nullptr;
}

std::optional<CUresult> error_named(std::string_view name) {
  for (const ErrorRow& row : rows) {
    if (name == row.name) return row.error;
  }
  return std::nullopt;
}

}  // namespace cuvmm::sim
