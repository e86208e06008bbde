// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

// While one exists, a fork() in another thread waits. For short work that a child must not find
// half done, since it lacks the thread that would finish it: changes under a lock that the child
// needs, and calls of the C library that hold a lock which stays locked in the child (measured with
// glibc 2.36: atexit, dl_iterate_phdr).
//
// Neither it nor a fork waits for the other longer than a second, since they might wait for each
// other: a program's fork handlers take locks too. It is no lock otherwise: after such a wait two
// threads may have one at a time.
class NoForks {
 public:
  NoForks();
  ~NoForks();
  NoForks(const NoForks&) = delete;
  NoForks& operator=(const NoForks&) = delete;

 private:
  const bool is_mine_;
};

}  // namespace cuvmm
