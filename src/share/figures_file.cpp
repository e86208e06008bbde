// SPDX-License-Identifier: Apache-2.0
#include "share/figures_file.hpp"

#include <cstddef>
#include <cstdio>

#include "trace/checksum.hpp"

namespace cuvmm::share {
std::uint32_t checksum_of(const Figures& figures) {
  constexpr std::size_t skipped = offsetof(Figures, question);
  const auto* const bytes = reinterpret_cast<const std::byte*>(&figures);
  return crc32c({bytes + skipped, sizeof figures - skipped});
}

std::string figures_file_name(const Publisher& publisher) {
  char name[64];
  std::snprintf(name, sizeof name, "figures-%d-%llu", publisher.process,
                static_cast<unsigned long long>(publisher.namespace_of_process));
  return name;
}

}  // namespace cuvmm::share
