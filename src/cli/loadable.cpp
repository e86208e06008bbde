// SPDX-License-Identifier: Apache-2.0
#include "cli/loadable.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "share/runtime_socket.hpp"

namespace cuvmm::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* ends_a_name = " \t\n:;";

std::uint64_t hash_of(const std::string& text) {  // FNV-1a
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  }
  return hash;
}

Error failed(const std::error_code& error) {
  return {.kind = ErrorKind::SystemFailed,
          .system_code = error.value(),
          .doing = "name a library without blanks and colons"};
}

}  // namespace

Result<std::string> loadable(const std::string& path) {
  if (path.find_first_of(ends_a_name) == std::string::npos) return path;
  const std::string own = TRY(share::private_folder());
  if (own.find_first_of(ends_a_name) != std::string::npos) {
    return Error::invalid("name a library without blanks and colons",
                          "XDG_RUNTIME_DIR itself has such a letter");
  }
  // Keep the last path component, since programs see it.
  const fs::path folder = fs::path{own} / fmt::format("link-{:016x}", hash_of(path));
  const fs::path link = folder / fs::path{path}.filename();
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return failed(error);
  if (fs::read_symlink(link, error) == path) return link.string();
  const fs::path draft = folder / fmt::format(".{}", ::getpid());
  fs::remove(draft, error);
  fs::create_symlink(path, draft, error);
  if (!error) fs::rename(draft, link, error);  // atomic, even if other processes do the same
  if (error) return failed(error);
  return link.string();
}

}  // namespace cuvmm::cli
