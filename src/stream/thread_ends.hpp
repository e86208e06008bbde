// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

class StreamTable;

// Notifies stream tables when a thread ends whose default stream they track.
class ThreadEnds {
 public:
  // If too many tables are registered already, this one keeps the streams of ended threads.
  static void add(StreamTable& table);
  // No thread that the table knows may end during the call.
  static void remove(StreamTable& table);
  // From now on, the calling thread's end is reported to the tables.
  static void watch_this_thread();
  // Call in a forked child: the parent's tables know none of its threads.
  static void forget_after_fork();
};

}  // namespace cuvmm
