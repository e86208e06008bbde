// SPDX-License-Identifier: Apache-2.0
#include "base/printable.hpp"

namespace cuvmm {
namespace {

// Length in bytes of the UTF-8 character at the beginning of the text; 0 if it is invalid or a
// control character.
std::size_t length_of_letter(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Reject overlong forms, surrogates, values beyond Unicode, and control characters.
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) >= 0xa0) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  if (first == 0xc2 && byte(1) < 0xa0) return 0;
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t length = length_of_letter(text);
    if (length == 0) {
      safe += '?';
      text.remove_prefix(1);
    } else {
      safe += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return safe;
}

}  // namespace cuvmm
