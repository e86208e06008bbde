// SPDX-License-Identifier: Apache-2.0
#include "alloc/peer_dma_detection.hpp"

#include <dirent.h>
#include <fcntl.h>
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

struct Named {
  const char* folder;
  std::string_view begins;
};
constexpr std::array devices{
    Named{"/dev/infiniband/", "uverbs"},
    Named{"/dev/", "nvidia-fs"},  // GPUDirect Storage
    Named{"/dev/", "gdrdrv"},     // GDRCopy
    Named{"/dev/", "cxi"},        // Slingshot
    Named{"/dev/", "hfi1"},       // Omni-Path
};

constexpr const char* descriptors = "/proc/self/fd/";
std::atomic<int> last_found{-1};

enum class Found : std::uint8_t { No, Yes, CannotLook };

// `matches(folder, name)`
template <class Matches>
Found any_entry(const std::string& of, Matches matches) {
  DIR* const folder = ::opendir(of.c_str());
  if (folder == nullptr) return Found::CannotLook;
  Found found = Found::No;
  while (const dirent* const entry = ::readdir(folder)) {
    if (!matches(::dirfd(folder), entry->d_name)) continue;
    found = Found::Yes;
    break;
  }
  ::closedir(folder);
  return found;
}

// Filters out the descriptors that a CUDA program holds by the dozen, without the cost of reading
// their names: memory devices, terminals, the cards themselves, and whatever is not a device.
bool is_certainly_another(int file) {
  constexpr unsigned memory = 1, terminals = 5, first_pty = 136, last_pty = 143, cards = 195;
  struct stat is {};
  if (::fstat(file, &is) != 0) return false;
  if (S_ISSOCK(is.st_mode) || S_ISFIFO(is.st_mode) || S_ISDIR(is.st_mode)) return true;
  if (!S_ISCHR(is.st_mode)) return false;
  const unsigned of = major(is.st_rdev);
  return of == memory || of == terminals || of == cards || (of >= first_pty && of <= last_pty);
}

bool leads_to_one(int folder, const char* link, const std::string& root) {
  std::array<char, 256> name{};
  const ssize_t length = ::readlinkat(folder, link, name.data(), name.size());
  if (length <= 0) return false;
  const std::string_view file{name.data(), static_cast<std::size_t>(length)};
  return std::any_of(devices.begin(), devices.end(), [&](const Named& device) {
    const std::string prefix = (root + device.folder).append(device.begins);
    return file.substr(0, prefix.size()) == prefix;
  });
}

// Whether this process could have one open. If it can no longer see its devices, it may have opened
// one before.
bool could_open_one(const std::string& root) {
  if (::access((root + "/dev/null").c_str(), F_OK) != 0) return true;
  return std::any_of(devices.begin(), devices.end(), [&](const Named& device) {
    return any_entry(root + device.folder, [&](int /*folder*/, std::string_view name) {
             return name.substr(0, device.begins.size()) == device.begins;
           }) == Found::Yes;
  });
}

// Caches briefly that the machine has no such device: too briefly to install a device, open it and
// register memory.
bool could_be_one(const std::string& root) {
  static std::atomic<std::uint64_t> none_until{0};
  constexpr std::uint64_t moment_ns = 100'000'000;
  if (!root.empty()) return could_open_one(root);
  const std::uint64_t now = now_ns();
  if (now < none_until.load(std::memory_order_relaxed)) return false;
  if (could_open_one(root)) return true;
  none_until.store(now + moment_ns, std::memory_order_relaxed);
  return false;
}

}  // namespace

// Programs keep such a device open, so the one found last answers most calls.
bool still_holds_device_by_address(const std::string& root) {
  const int last = last_found.load(std::memory_order_relaxed);
  return last >= 0 && leads_to_one(AT_FDCWD, (descriptors + std::to_string(last)).c_str(), root);
}

// Looks anew each time if the last answer was no, because we do not see files being opened.
bool holds_device_by_address(const std::string& root) {
  if (still_holds_device_by_address(root)) return true;
  if (!could_be_one(root)) return false;
  return any_entry(descriptors, [&](int folder, std::string_view name) {
           const int number = std::atoi(name.data());
           if (name[0] == '.' || is_certainly_another(number)) return false;
           if (!leads_to_one(folder, name.data(), root)) return false;
           last_found.store(number, std::memory_order_relaxed);
           return true;
         }) != Found::No;
}

}  // namespace cuvmm
