// SPDX-License-Identifier: Apache-2.0
#include "sim/backing.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <string>
#include <string_view>

#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

constexpr Size sparse_file_size = Size{1} << 60;
constexpr Size most_kept = 256 * MiB;
constexpr std::string_view name_of_shared = "cuvmm-sim-shared-of-";

int new_memory_file(const char* name, Size size) {
  const int file = memfd_create(name, MFD_CLOEXEC);
  if (file < 0) return -1;
  if (ftruncate(file, static_cast<off_t>(size)) == 0) return file;
  close(file);
  return -1;
}

}  // namespace

int Backing::file() {
  int known = file_.load(std::memory_order_acquire);
  if (known >= 0) return known;
  const int mine = new_memory_file("cuvmm-sim-memory", sparse_file_size);
  if (mine < 0) return -1;
  if (file_.compare_exchange_strong(known, mine, std::memory_order_acq_rel)) return mine;
  close(mine);
  return known;
}

Extent Backing::take(Size size) {
  if (!has_backing()) return {.file = -2, .offset = 0, .size = size};
  {
    const std::lock_guard holding{lock_};
    if (const auto kept = kept_.extract(size); !kept.empty()) {
      kept_bytes_ -= size;
      return kept.mapped();
    }
  }
  const int where = file();
  return {.file = where, .offset = next_offset_.fetch_add(size), .size = size};
}

void Backing::give_back(const Extent& extent) {
  if (extent.file < 0) return;
  {
    const std::lock_guard holding{lock_};
    if (extent.size <= most_kept - kept_bytes_) {
      kept_.emplace(extent.size, extent);
      kept_bytes_ += extent.size;
      return;
    }
  }
  empty(extent);
}

void Backing::empty(const Extent& extent) {
  if (extent.file < 0) return;
  fallocate(extent.file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(extent.offset), static_cast<off_t>(extent.size));
}

// The name tells the other processes which device the memory lies on.
Extent take_own_file(Size size, int device) {
  const std::string name = std::string{name_of_shared} + std::to_string(device);
  return {.file = new_memory_file(name.c_str(), size), .offset = 0, .size = size};
}

std::optional<int> device_of_own_file(int file) {
  std::array<char, 256> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(file);
  if (readlink(link.c_str(), path.data(), path.size() - 1) < 0) return {};
  std::string_view name{path.data()};
  const std::size_t begin = name.find(name_of_shared);
  if (begin == std::string_view::npos) return {};
  name.remove_prefix(begin + name_of_shared.size());
  int device = 0;
  const auto read = std::from_chars(name.data(), name.data() + name.size(), device);
  return read.ec == std::errc{} ? std::optional{device} : std::nullopt;
}

void close_own_file(const Extent& extent) {
  if (extent.file >= 0) close(extent.file);
}

}  // namespace cuvmm::sim
