// SPDX-License-Identifier: Apache-2.0
// A line of PTX for integers of one type, compared with the host's arithmetic.
#pragma once

#include <functional>
#include <string>
#include <type_traits>

#include "ptx_programs.hpp"

namespace cuvmm::test {

template <class T>
using Expected = std::function<std::uint64_t(T a, T b, T c)>;

template <class T>
const char* type_name() {
  constexpr bool is_signed = std::is_signed_v<T>;
  switch (sizeof(T)) {
    case 2:
      return is_signed ? "s16" : "u16";
    case 4:
      return is_signed ? "s32" : "u32";
    default:
      return is_signed ? "s64" : "u64";
  }
}

inline std::string with_type(std::string text, const std::string& type) {
  for (std::size_t at = text.find('T'); at != std::string::npos; at = text.find('T', at)) {
    text.replace(at, 1, type);
  }
  return text;
}

// 'T' in the lines stands for the type.
template <class T>
void expect_integer_lines(const std::string& text, const Expected<T>& expected,
                          const char* result_type = nullptr, bool divides = false) {
  const std::string type = type_name<T>();
  const std::string lines = with_type(text, type);
  SCOPED_TRACE(lines);
  auto operands = integer_operands(sizeof(T) * 8);
  if (divides) {
    for (PtxOperands& one : operands) one.b = one.b == 0 ? 5 : one.b;
  }
  const std::string result = result_type != nullptr ? result_type : type;
  const auto found =
      run_ptx({.operand_type = type, .result_type = result, .lines = lines}, operands);
  const unsigned bits = static_cast<unsigned>(std::stoi(result.substr(1)));
  const std::uint64_t mask = bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto [a, b, c] = operands[i];
    const std::uint64_t wanted =
        expected(static_cast<T>(a), static_cast<T>(b), static_cast<T>(c)) & mask;
    ASSERT_EQ(found[i], wanted) << std::hex << "a " << a << " b " << b << " c " << c;
  }
}

}  // namespace cuvmm::test
