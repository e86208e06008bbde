// SPDX-License-Identifier: Apache-2.0
#include "slurm/leftovers.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace cuvmm::slurm {
namespace {

struct Owner {
  pid_t process = 0;
  ino_t process_namespace = 0;
};

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  return problem == std::errc{} && rest == text.data() + text.size();
}

// Parses "figures-PID-NAMESPACE" and "control-PID-NAMESPACE".
std::optional<Owner> owner_of(std::string_view name) {
  for (const std::string_view before : {"figures-", "control-"}) {
    if (!name.starts_with(before)) continue;
    name.remove_prefix(before.size());
    const std::size_t between = name.find('-');
    Owner owner;
    if (between == std::string_view::npos || !read_number(name.substr(0, between), owner.process) ||
        !read_number(name.substr(between + 1), owner.process_namespace) || owner.process <= 0) {
      return {};
    }
    return owner;
  }
  return {};
}

bool has_ended(const Owner& owner, ino_t here) {
  return owner.process_namespace == here && ::kill(owner.process, 0) != 0 && errno == ESRCH;
}

}  // namespace

void remove_leftovers(const std::string& folder) {
  struct stat own {};
  if (::stat("/proc/self/ns/pid", &own) != 0) return;
  const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (opened < 0) return;
  const std::unique_ptr<DIR, int (*)(DIR*)> names{::fdopendir(opened), &::closedir};
  if (!names) return static_cast<void>(::close(opened));
  std::vector<std::string> ended;
  while (const dirent* const entry = ::readdir(names.get())) {
    const auto owner = owner_of(entry->d_name);
    if (owner && has_ended(*owner, own.st_ino)) ended.emplace_back(entry->d_name);
  }
  for (const std::string& name : ended) ::unlinkat(opened, name.c_str(), 0);
  ::rmdir(folder.c_str());
}

}  // namespace cuvmm::slurm
