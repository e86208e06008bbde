// SPDX-License-Identifier: Apache-2.0
#include "alloc/reclaim_steps.hpp"

#include <array>
#include <string>

#include "base/made_once.hpp"

namespace cuvmm {
namespace {

constexpr std::array<const char*, 8> parts{"new memory",
                                           "moving free chunks",
                                           "releasing cached blocks",
                                           "waiting for pending work",
                                           "moving live blocks",
                                           "spilled memory",
                                           "releasing other owners' memory",
                                           "asking for a larger lease"};
constexpr std::size_t combinations = std::size_t{1} << parts.size();

std::string words_of(std::size_t bits) {
  std::string words;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if ((bits >> i & 1) == 0) continue;
    if (!words.empty()) words += ", ";
    words += parts[i];
  }
  return words.empty() ? "nothing" : words;
}

const std::array<std::string, combinations>& all_words() {
  static constinit MadeOnce<const std::array<std::string, combinations>> all;
  return all.get([] {
    std::array<std::string, combinations> made;
    for (std::size_t bits = 0; bits < combinations; ++bits) made[bits] = words_of(bits);
    return made;
  });
}

}  // namespace

const char* ReclaimSteps::words() const {
  return all_words()[bits_].c_str();
}

}  // namespace cuvmm
