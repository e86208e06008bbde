// SPDX-License-Identifier: Apache-2.0
#include "sim/tables/private_table.hpp"

#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/made_once.hpp"
#include "base/no_forks.hpp"
#include "base/size.hpp"
#include "sim/entry.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

struct KnownTable {
  unsigned char id[sizeof(CUuuid)];
  const void* const* (*entries)();
};

constexpr KnownTable known_tables[] = {
    {{0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d,
      0xf9},
     &tables::runtime_interface},
    {{0x42, 0xd8, 0x5a, 0x81, 0x23, 0xf6, 0xcb, 0x47, 0x82, 0x98, 0xf6, 0xe7, 0x8a, 0x3a, 0xec,
      0xdc},
     &tables::tool_storage},
    {{0xa0, 0x94, 0x79, 0x8c, 0x2e, 0x74, 0x2e, 0x74, 0x93, 0xf2, 0x08, 0x00, 0x20, 0x0c, 0x0a,
      0x66},
     &tables::tool_hooks},
    {{0xc6, 0x93, 0x33, 0x6e, 0x11, 0x21, 0xdf, 0x11, 0xa8, 0xc3, 0x68, 0xf3, 0x55, 0xd8, 0x95,
      0x93},
     &tables::context_storage},
    {{0xd4, 0x08, 0x20, 0x55, 0xbd, 0xe6, 0x70, 0x4b, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1,
      0xf2},
     &tables::validity_check},
    {{0x26, 0x3e, 0x88, 0x60, 0x7c, 0xd2, 0x61, 0x43, 0x92, 0xf6, 0xbb, 0xd5, 0x00, 0x6d, 0xfa,
      0x7e},
     &tables::context_check},
    {{0x21, 0x31, 0x8c, 0x60, 0x97, 0x14, 0x32, 0x48, 0x8c, 0xa6, 0x41, 0xff, 0x73, 0x24, 0xc8,
      0xf2},
     &tables::library_interface},
};

// The runtime of CUDA 13 requests it first, and works without it.
constexpr unsigned char optional_table[] = {0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e,
                                            0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9};
static_assert(sizeof optional_table == sizeof(CUuuid));

std::string text_of(const CUuuid& id) {
  std::string text;
  for (std::size_t i = 0; i < sizeof id.bytes; ++i) {
    char digits[8];
    std::snprintf(digits, sizeof digits, "%02X", static_cast<unsigned char>(id.bytes[i]));
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits;
  }
  return text;
}

void log_unknown_table(const CUuuid& id) {
  static constinit std::mutex lock;
  static constinit MadeOnce<std::set<std::string>> said;
  const NoForks meanwhile;  // a child forked before cuInit needs the lock
  const std::lock_guard holding{lock};
  const std::string text = text_of(id);
  if (!said.get().insert(text).second) return;
  if (std::memcmp(optional_table, id.bytes, sizeof optional_table) == 0) {
    CUVMM_LOG(Debug, "the CUDA runtime asks for the private table %s, and does without it",
              text.c_str());
    return;
  }
  CUVMM_LOG(Warning,
            "the program asks for the driver's private table %s, which is not simulated: "
            "cuGetExportTable answers CUDA_ERROR_NOT_FOUND",
            text.c_str());
}

template <std::size_t index>
CUresult refuse_tool_hook() {
  return refuse_entry("TOOLS_RUNTIME_CALLBACK_HOOKS", index);
}
template <std::size_t index>
CUresult refuse_tool_storage() {
  return refuse_entry("TOOLS_TLS", index);
}

// Memory in which tools mark the runtime calls that they want to observe: none are marked. The
// runtime reads one word per call, whatever number of calls the driver reports.
void callbacks_wanted(void** where, std::size_t* size) {
  static std::array<std::byte, 64 * KiB> none{};
  *where = none.data();
  *size = none.size();
}
void domains_wanted(void** where, std::size_t* size) {
  static std::array<std::byte, 4 * KiB> none{};
  *where = none.data();
  *size = none.size();
}

CUresult check_context(CUcontext, std::uint32_t* flags, const void**) {
  if (flags != nullptr) *flags = 0;
  return CUDA_SUCCESS;
}
std::uint32_t check_process() {
  return 0;
}
template <std::size_t index>
CUresult refuse_library_entry() {
  return refuse_entry("21318C60", index);
}

// The entries of a table that must exist but whose contents are unknown: all of them refuse.
template <std::size_t... indices>
const void* const* refusing_entries(std::index_sequence<indices...>) {
  static const void* const entries[] = {
      reinterpret_cast<const void*>((sizeof...(indices) + 1) * sizeof(void*)),
      reinterpret_cast<const void*>(&refuse_library_entry<indices + 1>)...};
  return entries;
}

CUresult refuse_context_check() {
  return refuse_entry("CONTEXT_CHECKS", 1);
}

}  // namespace

const void* find_private_table(const CUuuid& id) {
  for (const KnownTable& table : known_tables) {
    if (std::memcmp(table.id, id.bytes, sizeof table.id) == 0) return table.entries();
  }
  log_unknown_table(id);
  return nullptr;
}

CUresult refuse_entry(const char* table, std::size_t index) {
  const std::string symbol = "entry " + std::to_string(index) + " of the private table " + table;
  return lacking(symbol.c_str());
}

const void* const* tables::tool_hooks() {
  static const void* const entries[] = {reinterpret_cast<const void*>(7 * sizeof(void*)),
                                        reinterpret_cast<const void*>(&refuse_tool_hook<1>),
                                        reinterpret_cast<const void*>(&callbacks_wanted),
                                        reinterpret_cast<const void*>(&refuse_tool_hook<3>),
                                        reinterpret_cast<const void*>(&refuse_tool_hook<4>),
                                        reinterpret_cast<const void*>(&refuse_tool_hook<5>),
                                        reinterpret_cast<const void*>(&domains_wanted)};
  return entries;
}

const void* const* tables::tool_storage() {
  static const void* const entries[] = {reinterpret_cast<const void*>(4 * sizeof(void*)),
                                        reinterpret_cast<const void*>(&refuse_tool_storage<1>),
                                        reinterpret_cast<const void*>(&refuse_tool_storage<2>),
                                        reinterpret_cast<const void*>(&refuse_tool_storage<3>)};
  return entries;
}

const void* const* tables::context_check() {
  static const void* const entries[] = {reinterpret_cast<const void*>(4 * sizeof(void*)),
                                        reinterpret_cast<const void*>(&refuse_context_check),
                                        reinterpret_cast<const void*>(&check_context),
                                        reinterpret_cast<const void*>(&check_process)};
  return entries;
}

// Requested by the runtime of CUDA 13.5, which was seen to call none of its entries at startup, and
// by math libraries.
const void* const* tables::library_interface() {
  constexpr std::size_t entries = 20;
  return refusing_entries(std::make_index_sequence<entries>{});
}

}  // namespace cuvmm::sim
