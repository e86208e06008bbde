// SPDX-License-Identifier: Apache-2.0
#include "hook/export_tables.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace cuvmm::hook {
namespace {

constexpr auto known_tables = std::to_array<std::string_view>({
#define CUVMM_EXPORT_TABLE(uuid) uuid,
#include "driver/export_tables.def"
#undef CUVMM_EXPORT_TABLE
});
static_assert(std::all_of(known_tables.begin(), known_tables.end(),
                          [](std::string_view one) { return one.size() == 36; }));

}  // namespace

std::array<char, 37> text_of(const CUuuid& id) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::array<char, 37> text{};
  std::size_t at = 0;
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text[at++] = '-';
    const auto byte = static_cast<unsigned char>(id.bytes[i]);
    text[at++] = digits[byte >> 4];
    text[at++] = digits[byte & 15];
  }
  return text;
}

bool is_known_export_table(const CUuuid& id) {
  const auto text = text_of(id);
  return std::find(known_tables.begin(), known_tables.end(), std::string_view{text.data()}) !=
         known_tables.end();
}

}  // namespace cuvmm::hook
