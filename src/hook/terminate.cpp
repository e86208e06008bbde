// SPDX-License-Identifier: Apache-2.0
// Overrides the C++ runtime's terminate handler. The default one names the uncaught exception,
// which needs code to print any C++ name: 60 KiB in every preloaded program. cuvmm throws nothing,
// and so gets here only if the host has no memory left for the process.
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace __gnu_cxx {

void __verbose_terminate_handler() {
  constexpr std::string_view why =
      "cuvmm: the process gets no more host memory (out of memory, an address space limit, or "
      "vm.max_map_count)\n";
  if (::write(STDERR_FILENO, why.data(), why.size()) < 0) std::abort();
  std::abort();
}

}  // namespace __gnu_cxx
