// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

class StreamTable;

// Tells tables of streams when a thread ends whose own default stream they know.
class ThreadEnds {
 public:
  // Where there are too many tables already, this one keeps the streams of threads that ended.
  static void add(StreamTable& table);
  // No thread that the table knows ends meanwhile.
  static void remove(StreamTable& table);
  // The calling thread's end is told from now on.
  static void watch_this_thread();
  // In the child: its threads are not those of the parent's tables.
  static void forget_after_fork();
};

}  // namespace cuvmm
