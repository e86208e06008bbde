// SPDX-License-Identifier: Apache-2.0
#include "view/elf_symbols.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include "base/fd.hpp"

namespace cuvmm::view {
namespace {

// The bytes of an untrusted file. Never reads outside of them, whatever they contain.
class MappedFile {
 public:
  MappedFile(const std::string& path, std::uint64_t unchanged_since) {
    const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct stat facts;
    if (!file.is_open() || ::fstat(file.number(), &facts) != 0 || !S_ISREG(facts.st_mode)) return;
    const auto changed = static_cast<std::uint64_t>(facts.st_mtim.tv_sec) * 1'000'000'000;
    if (changed > unchanged_since || facts.st_size <= 0) return;
    size_ = static_cast<std::size_t>(facts.st_size);
    bytes_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.number(), 0);
  }
  ~MappedFile() {
    if (bytes_ != MAP_FAILED) ::munmap(bytes_, size_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const char> part(std::uint64_t at, std::uint64_t size) const {
    if (bytes_ == MAP_FAILED || at > size_ || size > size_ - at) return {};
    return {static_cast<const char*>(bytes_) + at, static_cast<std::size_t>(size)};
  }
  template <class T>
  std::optional<T> read(std::uint64_t at) const {
    const auto bytes = part(at, sizeof(T));
    if (bytes.empty()) return {};
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }

 private:
  void* bytes_ = MAP_FAILED;
  std::size_t size_ = 0;
};

std::optional<Elf64_Shdr> section(const MappedFile& file, const Elf64_Ehdr& header,
                                  std::uint64_t number) {
  if (number >= header.e_shnum || header.e_shentsize != sizeof(Elf64_Shdr)) return {};
  return file.read<Elf64_Shdr>(header.e_shoff + number * sizeof(Elf64_Shdr));
}

// The full table if the file was not stripped, otherwise that of its exported functions.
std::optional<Elf64_Shdr> symbol_table(const MappedFile& file, const Elf64_Ehdr& header) {
  std::optional<Elf64_Shdr> exported;
  for (std::uint64_t i = 0; i < header.e_shnum; ++i) {
    const auto found = section(file, header, i);
    if (!found) break;
    if (found->sh_type == SHT_SYMTAB) return found;
    if (found->sh_type == SHT_DYNSYM) exported = found;
  }
  return exported;
}

std::string text_at(std::span<const char> texts, std::uint64_t at) {
  if (at >= texts.size()) return {};
  const auto rest = texts.subspan(at);
  return {rest.begin(), std::find(rest.begin(), rest.end(), '\0')};
}

std::string demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text{
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free};
  return status == 0 && text != nullptr ? text.get() : name;
}

}  // namespace

ElfSymbols ElfSymbols::of_file(const std::string& path, std::uint64_t unchanged_since) {
  ElfSymbols symbols;
  const MappedFile file{path, unchanged_since};
  const auto header = file.read<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB) {
    return symbols;
  }
  const auto table = symbol_table(file, *header);
  const auto names = table ? section(file, *header, table->sh_link) : std::nullopt;
  if (!names) return symbols;
  const auto texts = file.part(names->sh_offset, names->sh_size);
  const auto entries = file.part(table->sh_offset, table->sh_size);
  for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= entries.size(); at += sizeof(Elf64_Sym)) {
    Elf64_Sym symbol;
    std::memcpy(&symbol, entries.data() + at, sizeof symbol);
    if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0) continue;
    symbols.functions_.push_back({symbol.st_value, symbol.st_size, text_at(texts, symbol.st_name)});
  }
  std::sort(symbols.functions_.begin(), symbols.functions_.end(),
            [](const Function& a, const Function& b) { return a.begin < b.begin; });
  return symbols;
}

std::optional<std::string> ElfSymbols::function_at(std::uint64_t address) const {
  auto after = std::upper_bound(
      functions_.begin(), functions_.end(), address,
      [](std::uint64_t wanted, const Function& one) { return wanted < one.begin; });
  if (after == functions_.begin()) return {};
  const Function& found = *--after;
  if (address - found.begin >= found.size || found.name.empty()) return {};
  return demangled(found.name);
}

}  // namespace cuvmm::view
