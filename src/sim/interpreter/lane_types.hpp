// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cuvmm::sim {

// Types of one lane of a register.
using U16 = std::uint16_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using S16 = std::int16_t;
using S32 = std::int32_t;
using S64 = std::int64_t;

template <class T>
constexpr unsigned bits_of = sizeof(T) * 8;

}  // namespace cuvmm::sim
