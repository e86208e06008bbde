// SPDX-License-Identifier: Apache-2.0
#include "share/private_folder.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string_view>

#include "share/system_error.hpp"

namespace cuvmm::share {
namespace {

constexpr const char* opening = "open the folder for sockets";

template <class Visit>
void for_each_name(DIR* folder, const std::string& prefix, const Visit& visit) {
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder)) {
    if (std::string_view{entry->d_name}.starts_with(prefix)) visit(entry->d_name);
  }
  ::closedir(folder);
}

// A umask may have kept the owner out of a folder that is this user's alone.
void let_owner_in(const std::string& path) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) return;
  const bool is_ours = facts.st_uid == ::geteuid() && (facts.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  if (is_ours && (facts.st_mode & S_IRWXU) != S_IRWXU) ::chmod(path.c_str(), S_IRWXU);
}

}  // namespace

Result<PrivateFolder> PrivateFolder::open(const std::string& path) {
  Fd folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
  struct stat facts {};
  const bool is_open = folder.is_open() && ::fstat(folder.number(), &facts) == 0;
  const bool is_denied = errno == EACCES || errno == ELOOP || errno == ENOTDIR;
  if (!is_open && !is_denied) {
    Error error = system_error(opening);
    if (errno == ENOENT) error.kind = ErrorKind::NotFound;
    return error;
  }
  if (!is_open || facts.st_uid != ::geteuid() || (facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Error{.kind = ErrorKind::InvalidArgument,
                 .system_code = is_open ? 0 : errno,
                 .doing = opening,
                 .subject = "it is not this user's alone"};
  }
  return PrivateFolder{path, std::move(folder)};
}

Result<PrivateFolder> PrivateFolder::open_or_make(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) return system_error(opening);
  let_owner_in(path);
  return open(path);
}

std::string PrivateFolder::open_path_of(const std::string& name) const {
  const std::string open = "/proc/self/fd/" + std::to_string(folder_.number());
  const bool is_reached = ::faccessat(AT_FDCWD, open.c_str(), F_OK, AT_EACCESS) == 0;
  return (is_reached ? open : path_) + "/" + name;
}

std::vector<std::string> PrivateFolder::names(const std::string& prefix) const {
  std::vector<std::string> names;
  Fd reading{::openat(folder_.number(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  DIR* const folder = ::fdopendir(reading.number());
  if (folder != nullptr) static_cast<void>(reading.release());  // closed with the folder
  for_each_name(folder, prefix, [&](const char* name) { names.emplace_back(name); });
  return names;
}

bool PrivateFolder::owns(const std::string& name, mode_t type) const {
  struct stat facts;
  return ::fstatat(folder_.number(), name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
         (facts.st_mode & S_IFMT) == type && facts.st_uid == ::geteuid();
}

void PrivateFolder::remove(const std::string& name) const {
  ::unlinkat(folder_.number(), name.c_str(), 0);
}

std::string usual_folder_name() {
  return "cuvmm-" + std::to_string(::geteuid());
}

std::vector<std::string> usual_folders() {
  std::vector<std::string> folders;
  const char* const given = ::secure_getenv("XDG_RUNTIME_DIR");
  if (given != nullptr && given[0] == '/') folders.push_back(std::string(given) + "/cuvmm");
  for (const char* const shared : shared_folders) {
    folders.push_back(std::string(shared) + "/" + usual_folder_name());
  }
  return folders;
}

Result<std::string> make_fresh_folder(const std::string& shared) {
  std::string path = shared + "/" + usual_folder_name() + "-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) return system_error(opening);
  let_owner_in(path);
  return path;
}

std::vector<std::string> fresh_folders() {
  std::vector<std::string> folders;
  for (const std::string shared : shared_folders) {
    for_each_name(::opendir(shared.c_str()), usual_folder_name() + "-",
                  [&](const char* name) { folders.push_back(shared + "/" + name); });
  }
  return folders;
}

}  // namespace cuvmm::share
