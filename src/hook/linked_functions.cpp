// SPDX-License-Identifier: Apache-2.0
#include "hook/linked_functions.hpp"

#include <link.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "base/no_forks.hpp"
#include "hook/door_of.hpp"
#include "hook/unlisted.hpp"

namespace cuvmm::hook {
namespace {

// What the loader itself uses of a loaded file.
class DynamicSection {
 public:
  explicit DynamicSection(const dl_phdr_info& object) {
    for (int i = 0; i < object.dlpi_phnum; ++i) {
      const ElfW(Phdr)& segment = object.dlpi_phdr[i];
      if (segment.p_type == PT_DYNAMIC) entries_ = at<ElfW(Dyn)>(object, segment.p_vaddr);
    }
    for (const auto* entry = entries_; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_STRTAB) strings_ = at<char>(object, entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRSZ) size_of_strings_ = entry->d_un.d_val;
      if (entry->d_tag == DT_SYMTAB) symbols_ = at<ElfW(Sym)>(object, entry->d_un.d_ptr);
      if (entry->d_tag == DT_GNU_HASH) gnu_hash_ = at<std::uint32_t>(object, entry->d_un.d_ptr);
      if (entry->d_tag == DT_HASH) hash_ = at<std::uint32_t>(object, entry->d_un.d_ptr);
    }
  }

  bool is_linked_to(std::string_view library) const {
    for (const auto* entry = entries_; entry != nullptr && entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_NEEDED && string(entry->d_un.d_val).starts_with(library)) return true;
    }
    return false;
  }

  template <class Visit>
  void each_import(const Visit& visit) const {
    if (symbols_ == nullptr) return;
    const std::size_t end = end_of_imports();
    for (std::size_t i = 1; i < end; ++i) {
      if (symbols_[i].st_shndx == SHN_UNDEF) visit(string(symbols_[i].st_name));
    }
  }

 private:
  // Most loaders replace the addresses in the section by absolute ones.
  template <class Thing>
  static const Thing* at(const dl_phdr_info& object, ElfW(Addr) address) {
    const ElfW(Addr) base = object.dlpi_addr;
    return reinterpret_cast<const Thing*>(address < base ? base + address : address);
  }

  std::string_view string(std::size_t offset) const {
    return strings_ != nullptr && offset < size_of_strings_ ? strings_ + offset
                                                            : std::string_view{};
  }

  // Imports precede the symbols in a hash table of GNU's. If that is empty, nothing tells how many
  // symbols there are, but linkers place the strings right behind them.
  std::size_t end_of_imports() const {
    if (hash_ != nullptr) return hash_[1];
    if (gnu_hash_ != nullptr && gnu_hash_[1] > 1) return gnu_hash_[1];
    const auto* const end = reinterpret_cast<const ElfW(Sym)*>(strings_);
    return end > symbols_ ? static_cast<std::size_t>(end - symbols_) : 0;
  }

  const ElfW(Dyn) * entries_ = nullptr;
  const char* strings_ = nullptr;
  std::size_t size_of_strings_ = 0;
  const ElfW(Sym) * symbols_ = nullptr;
  const std::uint32_t* gnu_hash_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
};

struct Import {
  std::string library;
  std::string function;
};

struct Search {
  unsigned long long loads_before = 0;
  unsigned long long loads = 0;  // so far in this process
  std::vector<Import> found;
};

// Called by the loader, which holds a lock of its own: the caller uses what it finds.
int examine(dl_phdr_info* object, std::size_t, void* context) {
  auto& search = *static_cast<Search*>(context);
  search.loads = object->dlpi_adds;
  if (search.loads == search.loads_before) return 1;
  const DynamicSection section{*object};
  if (!section.is_linked_to("libcuda.so")) return 0;
  section.each_import([&](std::string_view name) {
    if (is_unlisted(name)) search.found.push_back({object->dlpi_name, std::string{name}});
  });
  return 0;
}

}  // namespace

void check_linked_functions(Engine& engine) {
  static constinit std::atomic<unsigned long long> loads_seen{0};
  if (!hook_coverage().is_whole()) return;
  const int kept_errno = errno;
  Search search{.loads_before = loads_seen.load(std::memory_order_relaxed)};
  {
    const NoForks meanwhile;
    ::dl_iterate_phdr(&examine, &search);
  }
  loads_seen.store(search.loads, std::memory_order_relaxed);
  for (const Import& import : search.found) {
    if (!driver_has(import.function.c_str())) continue;
    const CallBarrier::Pass pass{engine.calls()};
    if (settle_and_end_coverage(engine)) {
      CUVMM_LOG(Info,
                "%s is linked to function=%s, which is unknown to this version: hook coverage is "
                "no longer full",
                import.library.empty() ? "the program" : import.library.c_str(),
                import.function.c_str());
    }
    break;
  }
  errno = kept_errno;
}

}  // namespace cuvmm::hook
