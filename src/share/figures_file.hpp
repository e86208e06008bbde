// SPDX-License-Identifier: Apache-2.0
// The checksum and the names of figures files, for both sides.
#pragma once

#include "share/figures.hpp"
#include "share/private_folder.hpp"
#include "share/process.hpp"

namespace cuvmm::share {

inline constexpr std::uint64_t figures_magic = 0x31'73'65'72'75'67'69'66;  // "figures1"

std::uint32_t checksum_of(const Figures& figures);

// Unique among running processes, across pid namespaces.
std::string figures_file_name(const Publisher& publisher);

// The process that a complete figures file's name gives; nothing for any other name.
std::optional<pid_t> process_in_figures_file_name(const std::string& name);

// Names of complete figures files, unordered.
std::vector<std::string> figures_in(const PrivateFolder& folder);
// Removes files whose process, identified by the pid in the name, no longer runs. Keeps files of
// other pid namespaces, whose processes are not visible here.
void remove_figures_of_the_dead(const PrivateFolder& folder);

}  // namespace cuvmm::share
