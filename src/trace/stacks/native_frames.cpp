// SPDX-License-Identifier: Apache-2.0
#include "trace/stacks/native_frames.hpp"

#include <link.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdio>

#include "base/no_forks.hpp"

// The first and last address of this library in memory.
extern "C" {
[[gnu::visibility("hidden")]] extern const char __ehdr_start;
[[gnu::visibility("hidden")]] extern const char _end;
}

namespace cuvmm::stacks {
namespace {

bool is_ours(std::uint64_t address) {
  return address >= reinterpret_cast<std::uint64_t>(&__ehdr_start) &&
         address < reinterpret_cast<std::uint64_t>(&_end);
}

struct Walk {
  std::span<Frame> frames;
  std::size_t count = 0;
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  const std::uint64_t address = _Unwind_GetIP(context);
  if (address == 0) return _URC_END_OF_STACK;
  if (walk.count == 0 && is_ours(address)) return _URC_NO_REASON;
  walk.frames[walk.count++] = {.code = address};
  return walk.count < walk.frames.size() ? _URC_NO_REASON : _URC_END_OF_STACK;
}

struct Search {
  std::uint64_t address;
  const char* file = nullptr;  // empty: the program itself
  std::uint64_t offset = 0;
};

int look_into(dl_phdr_info* module, std::size_t, void* argument) {
  auto& search = *static_cast<Search*>(argument);
  const std::uint64_t offset = search.address - module->dlpi_addr;
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const auto& part = module->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || offset - part.p_vaddr >= part.p_memsz) continue;
    search.file = module->dlpi_name;
    search.offset = offset;
    return 1;
  }
  return 0;
}

}  // namespace

std::size_t native_frames(std::span<Frame> frames) {
  Walk walk{frames};
  _Unwind_Backtrace(&visit, &walk);
  return walk.count;
}

std::string name_of_native(const Frame& frame) {
  Search search{frame.code - 1};  // inside the call, not after it
  const bool is_found = [&] {
    const NoForks meanwhile;
    return ::dl_iterate_phdr(&look_into, &search) != 0;
  }();
  if (!is_found) return "?";
  char program[1024] = "?";
  if (*search.file == '\0') {
    const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program - 1);
    if (length > 0) program[length] = '\0';
    search.file = program;
  }
  char name[1088];
  std::snprintf(name, sizeof name, "%s+0x%lx", search.file, search.offset);
  return name;
}

}  // namespace cuvmm::stacks
