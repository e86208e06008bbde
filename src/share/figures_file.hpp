// SPDX-License-Identifier: Apache-2.0
// What both sides of figures know of the file and of processes.
#pragma once

#include "share/figures.hpp"
#include "share/process.hpp"

namespace cuvmm::share {

inline constexpr std::uint64_t figures_magic = 0x31'73'65'72'75'67'69'66;  // "figures1"

std::uint32_t checksum_of(const Figures& figures);

// Distinct among processes that run, whatever namespace each is of.
std::string figures_file_name(const Publisher& publisher);

}  // namespace cuvmm::share
