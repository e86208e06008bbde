// SPDX-License-Identifier: Apache-2.0
#include "cli/preload_version.hpp"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <vector>

namespace cuvmm::cli {
namespace {

constexpr std::size_t largest_notes = 64 * 1024;

template <class T>
bool read_at(std::ifstream& file, std::uint64_t place, T* into, std::size_t count) {
  file.seekg(static_cast<std::streamoff>(place));
  file.read(reinterpret_cast<char*>(into), static_cast<std::streamsize>(count * sizeof(T)));
  return file.good();
}

std::size_t padded(std::size_t size) {
  return (size + 3) / 4 * 4;
}

// The content of the note named "cuvmm" in a sequence of ELF notes.
std::string content_of_our_note(const std::string& notes) {
  for (std::size_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size();) {
    Elf64_Nhdr head;
    std::memcpy(&head, notes.data() + at, sizeof head);
    const std::size_t name = at + sizeof head;
    const std::size_t content = name + padded(head.n_namesz);
    if (head.n_namesz > notes.size() || head.n_descsz > notes.size()) break;
    if (content + head.n_descsz > notes.size()) break;
    if (std::strcmp(notes.c_str() + name, "cuvmm") == 0) return notes.c_str() + content;
    at = content + padded(head.n_descsz);
  }
  return {};
}

}  // namespace

std::string version_of_preload(const std::string& library) {
  std::ifstream file{library, std::ios::binary};
  Elf64_Ehdr header;
  if (!read_at(file, 0, &header, 1) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  if (!read_at(file, header.e_phoff, parts.data(), parts.size())) return {};
  for (const Elf64_Phdr& part : parts) {
    if (part.p_type != PT_NOTE || part.p_filesz > largest_notes) continue;
    std::string notes(part.p_filesz, '\0');
    if (!read_at(file, part.p_offset, notes.data(), notes.size())) return {};
    if (std::string version = content_of_our_note(notes); !version.empty()) return version;
  }
  return {};
}

}  // namespace cuvmm::cli
