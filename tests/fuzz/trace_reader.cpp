// SPDX-License-Identifier: Apache-2.0
// Arbitrary bytes as a trace, through everything that reads traces: no crash, no hang, bounded
// memory. Driven by libFuzzer if the compiler has it (clang), else by cuvmm's own driver, which
// changes the traces that it is given (mutate.cpp).
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "fuzz/mend_checksums.hpp"
#include "trace/reader.hpp"
#include "view/live_blocks.hpp"
#include "view/memory_walk.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  cuvmm::Fd file{::memfd_create("trace", MFD_CLOEXEC)};
  if (::write(file.number(), bytes, size) != static_cast<ssize_t>(size)) return 0;
  auto trace = cuvmm::TraceReader::open(std::move(file));
  if (!trace.ok()) return 0;
  cuvmm::view::MemorySink nobody;
  cuvmm::view::MemoryWalk walk{nobody};
  std::uint64_t before = 0;
  while (const cuvmm::TraceRecord* record = trace->next()) {
    if (record->time < before) __builtin_trap();  // records come in order of time
    before = record->time;
    walk.add(*record);
  }
  static_cast<void>(trace->note());
  return 0;
}

#ifdef CUVMM_FUZZ
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* bytes, std::size_t size, std::size_t most);

// Otherwise nearly every change ends at the first checksum.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* bytes, std::size_t size,
                                               std::size_t most, unsigned seed) {
  const std::size_t changed = LLVMFuzzerMutate(bytes, size, most);
  if (seed % 4 != 0) cuvmm::test::mend_checksums({bytes, changed});
  return changed;
}
#endif
