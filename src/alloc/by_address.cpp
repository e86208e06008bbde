// SPDX-License-Identifier: Apache-2.0
#include "alloc/by_address.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "base/clock.hpp"

namespace cuvmm {
namespace {

constexpr std::array devices{"/dev/infiniband/uverbs", "/dev/nvidia-fs"};

// One of these is there where such a device can be. A container may show the system's in /sys and
// /proc only, and be given an open file from outside.
constexpr std::array signs{"/dev/infiniband", "/sys/class/infiniband_verbs", "/dev/nvidia-fs0",
                           "/proc/driver/nvidia-fs"};

// What a CUDA program holds open by the dozen, known by what costs less to ask than a name: memory
// devices, terminals, the cards themselves, and what is no device at all.
bool is_certainly_another(int file) {
  constexpr unsigned memory = 1, terminals = 5, first_pty = 136, last_pty = 143, cards = 195;
  struct stat is {};
  if (::fstat(file, &is) != 0) return false;
  if (S_ISSOCK(is.st_mode) || S_ISFIFO(is.st_mode) || S_ISDIR(is.st_mode)) return true;
  if (!S_ISCHR(is.st_mode)) return false;
  const unsigned of = major(is.st_rdev);
  return of == memory || of == terminals || of == cards || (of >= first_pty && of <= last_pty);
}

bool is_one(int folder, const char* entry, const std::string& root) {
  if (entry[0] == '.' || is_certainly_another(std::atoi(entry))) return false;
  std::array<char, 256> name{};
  const ssize_t length = ::readlinkat(folder, entry, name.data(), name.size());
  if (length <= 0) return false;
  const std::string_view file{name.data(), static_cast<std::size_t>(length)};
  return std::any_of(devices.begin(), devices.end(), [&](const char* device) {
    const std::string prefix = root + device;
    return file.substr(0, prefix.size()) == prefix;
  });
}

bool has_sign(const std::string& root) {
  return std::any_of(signs.begin(), signs.end(),
                     [&](const char* sign) { return ::access((root + sign).c_str(), F_OK) == 0; });
}

// Of the machine itself that there is none is remembered for a moment, in which nobody installs a
// device, opens it and registers memory.
bool can_be_one(const std::string& root) {
  static std::atomic<std::uint64_t> none_until{0};
  constexpr std::uint64_t moment_ns = 100'000'000;
  if (!root.empty()) return has_sign(root);
  const std::uint64_t now = now_ns();
  if (now < none_until.load(std::memory_order_relaxed)) return false;
  if (has_sign(root)) return true;
  none_until.store(now + moment_ns, std::memory_order_relaxed);
  return false;
}

}  // namespace

bool holds_device_by_address(const std::string& root) {
  if (!can_be_one(root)) return false;
  DIR* const files = ::opendir("/proc/self/fd");
  if (files == nullptr) return true;
  bool found = false;
  while (const dirent* const entry = ::readdir(files)) {
    if ((found = is_one(::dirfd(files), entry->d_name, root))) break;
  }
  ::closedir(files);
  return found;
}

}  // namespace cuvmm
