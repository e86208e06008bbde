// SPDX-License-Identifier: Apache-2.0
#include "share/figures_file.hpp"

#include <sys/stat.h>

#include <cstddef>
#include <cstdio>
#include <optional>
#include <string_view>

#include "trace/checksum.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* figures_prefix = "figures-";

struct FiguresFileName {
  pid_t process = 0;
  std::uint64_t namespace_of_process = 0;
  bool is_whole = false;  // false: still being written
};

// "figures-4711-4026531836"; nothing for any other name.
std::optional<FiguresFileName> read_figures_file_name(const char* name) {
  FiguresFileName read;
  int length = 0;
  unsigned long long number = 0;
  if (std::sscanf(name, "figures-%d-%llu%n", &read.process, &number, &length) != 2) return {};
  const std::string_view rest{name + length};
  if (read.process <= 0 || (!rest.empty() && rest != being_made)) return {};
  read.namespace_of_process = number;
  read.is_whole = rest.empty();
  return read;
}

}  // namespace

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

std::optional<pid_t> process_in_figures_file_name(const std::string& name) {
  const auto read = read_figures_file_name(name.c_str());
  return read && read->is_whole ? std::optional{read->process} : std::nullopt;
}

std::vector<std::string> figures_in(const PrivateFolder& folder) {
  std::vector<std::string> names = folder.names(figures_prefix);
  std::erase_if(names, [](const std::string& name) { return !process_in_figures_file_name(name); });
  return names;
}

void remove_figures_of_the_dead(const PrivateFolder& folder) {
  const std::uint64_t here = namespace_of_processes();
  if (here == 0) return;
  for (const std::string& name : folder.names(figures_prefix)) {
    const auto read = read_figures_file_name(name.c_str());
    if (!read || read->namespace_of_process != here) continue;
    if (!state_of(read->process).runs && folder.owns(name, S_IFREG)) folder.remove(name);
  }
}

}  // namespace cuvmm::share
