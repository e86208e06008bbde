// SPDX-License-Identifier: Apache-2.0
// What both sides of figures know of the file and of processes.
#pragma once

#include "share/figures.hpp"
#include "share/private_folder.hpp"
#include "share/process.hpp"

namespace cuvmm::share {

inline constexpr std::uint64_t figures_magic = 0x31'73'65'72'75'67'69'66;  // "figures1"

std::uint32_t checksum_of(const Figures& figures);

// Distinct among processes that run, whatever namespace each is of.
std::string figures_file_name(const Publisher& publisher);

// Names of whole files of figures, in no order.
std::vector<std::string> figures_in(const PrivateFolder& folder);
// Removes files whose process, by its number in the name, no longer runs. Leaves those of other
// namespaces, whose processes cannot be seen from here.
void remove_figures_of_the_dead(const PrivateFolder& folder);

}  // namespace cuvmm::share
