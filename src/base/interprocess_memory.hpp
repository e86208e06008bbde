// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// Counts the memory of this process that others may hold, and what it has imported: chunks, and
// what the driver shares itself. While the process is off its devices there must be none: the
// driver brings memory back as other memory, so that a process which holds the old one no longer
// sees it change, and cannot restore memory of others at all (measured with driver 580).
// Thread-safe.
class InterprocessMemory {
 public:
  // False while closed.
  static bool add();
  static void remove();

  // From now on there can be none. False, without effect, if there are any.
  static bool close();
  static void reopen();
};

}  // namespace cuvmm
