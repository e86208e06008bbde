// SPDX-License-Identifier: Apache-2.0
// A process's memory counts, published to its user's processes (`cuvmm top`): a file in the
// folder of that user alone. Nothing is written while nobody asks. Who looks raises the question's
// number and wakes the process, which writes its answer behind the same number.
//
// Both sides read and write the file by system calls and map it only to wait and to wake: a file
// that somebody cuts off then fails a call, and kills nobody.
#pragma once

#include <sys/types.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/file_identity.hpp"
#include "base/result.hpp"

namespace cuvmm::share {

inline constexpr std::uint32_t figures_version = 3;

// Bytes, as the counters of the same names have them.
struct DeviceFigures {
  std::uint32_t ordinal = 0;
  std::uint32_t reserved = 0;
  Size memory = 0;          // of the card
  Size limit = 0;           // all ones: none
  Size requested_live = 0;  // what the program asked for and holds
  Size cached = 0;          // held, and nobody's
  Size physical = 0;        // held of the device
  Size spilled = 0;         // in use elsewhere
  std::uint64_t moves = 0;  // chunks and blocks, so far
  Size moved = 0;
  std::array<std::uint8_t, 16> uuid{};  // all zero: the driver does not say
  std::uint64_t refusals = 0;           // allocations that found no memory, so far
  Size placed_in = 0;                   // moved to the device because it was used, so far
  Size placed_out = 0;                  // moved away because it was not
  Size spilled_hot = 0;                 // spilled, and in use
};

// One arena, or a context's windows.
struct RegionFigures {
  std::uint32_t device = 0;  // its ordinal
  std::uint32_t blocks = 0;
  std::array<char, 40> what{};  // ends with a zero
  Size held = 0;                // physical memory, on the device and elsewhere
  Size used = 0;                // by live blocks
  Size cached = 0;    // by freed blocks that are kept for the next allocation of their size
  Size spilled = 0;   // of what is held
  Size reserved = 0;  // addresses
};

// Pauses of the whole process so far, or resumes.
struct PauseFigures {
  static constexpr std::array<std::uint64_t, 8> bounds_us{
      10'000, 30'000, 100'000, 300'000, 1'000'000, 3'000'000, 10'000'000, 30'000'000};
  static constexpr std::size_t bucket_count = bounds_us.size() + 1;
  static std::size_t bucket_of(std::uint64_t us) {
    std::size_t bucket = 0;
    while (bucket < bounds_us.size() && us > bounds_us[bucket]) ++bucket;
    return bucket;
  }

  std::array<std::uint64_t, bucket_count> counts{};  // the last: longer than all bounds
  std::uint64_t sum_us = 0;
  Size bytes = 0;  // that were moved
};

struct Figures {
  static constexpr std::size_t most_devices = 16;
  static constexpr std::size_t most_regions = 32;

  std::uint32_t checksum = 0;    // of what follows: who reads while it is written reads again
  std::uint32_t question = 0;    // the one that is answered
  std::uint64_t time_us = 0;     // now_us()
  std::uint32_t is_counted = 0;  // 0: the memory is the driver's, and nobody knows
  std::uint32_t device_count = 0;
  std::uint32_t is_paused = 0;
  std::uint32_t region_count = 0;
  std::uint32_t regions_left_out = 0;  // those that hold the least
  std::uint32_t reserved = 0;
  Size paused = 0;  // on the host, of a paused process
  PauseFigures pauses;
  PauseFigures resumes;
  std::array<DeviceFigures, most_devices> devices{};
  std::array<RegionFigures, most_regions> regions{};  // those that hold the most first
};

// Who publishes. Texts end with a zero.
struct Publisher {
  std::uint64_t magic = 0;
  std::uint32_t version = figures_version;
  std::int32_t process = 0;
  std::uint64_t namespace_of_process = 0;  // its inode: numbers of processes count within one
  std::uint64_t start_ticks = 0;  // of the process: tells it from a later one of its number
  std::array<char, 32> library_version{};
  std::array<char, 16> mode{};
  std::array<char, 64> name{};  // VMM_NAME
  std::array<char, 256> command{};

  // This process, but for its mode and version.
  static Publisher of_this_process();
};

// The file as it lies on the disk.
struct FiguresLayout {
  Publisher publisher;
  std::uint32_t question = 0;
  std::uint32_t reserved = 0;
  Figures answer;
};
static_assert(sizeof(FiguresLayout) <= 8192);

// The publishing side. It does nothing by itself: the waiting caller gives it the time.
class PublishedFigures {
 public:
  static Result<PublishedFigures> publish(const Publisher& publisher);
  PublishedFigures(PublishedFigures&& other) noexcept;
  PublishedFigures& operator=(PublishedFigures&&) = delete;
  ~PublishedFigures();

  // Until somebody asks, or that long. The question; nothing where nobody asked.
  // NotFound where the file is gone, or another has its name: nobody can ask any more. Any other
  // Error may pass: the question stands there still.
  Result<std::optional<std::uint32_t>> wait_for_question(Duration at_most);
  Result<void> answer(Figures figures, std::uint32_t question);

  // Takes the file away, at the end of the process that made it.
  void remove() const;

 private:
  PublishedFigures(std::string path, void* mapping, const FileIdentity& file);
  Result<Fd> open_again() const;

  std::string path_;
  void* mapping_;
  FileIdentity file_;
  pid_t process_;
  std::uint32_t answered_ = 0;
};

// The side of who looks: one process.
class SeenFigures {
 public:
  // InvalidArgument for a file that is not this user's alone, or none of ours.
  static Result<SeenFigures> open(const std::string& path);
  SeenFigures(SeenFigures&& other) noexcept;
  SeenFigures& operator=(SeenFigures&& other) noexcept;
  ~SeenFigures();

  const std::string& path() const { return path_; }
  const Publisher& publisher() const { return publisher_; }
  void ask();
  // Whether the last question is answered; then figures() are new.
  bool look();
  // As they were last answered; question 0: never.
  const Figures& figures() const { return figures_; }
  // Takes away what a process that has ended left behind.
  void remove_file() const;
  // The process has ended, or runs another program by now. False where that cannot be known.
  bool has_ended() const;

 private:
  SeenFigures(std::string path, Fd file, void* mapping, const Publisher& publisher);
  bool is_answered() const;

  std::string path_;
  Fd file_;
  void* mapping_;
  Publisher publisher_;
  std::uint32_t question_ = 0;
  Figures figures_;
};

// Files of figures in the folders of this user, in no order, and folders that cannot be looked
// into, with the reason. A folder that does not exist is no problem.
struct FiguresFiles {
  std::vector<std::string> paths;
  std::vector<std::string> problems;
};
FiguresFiles find_figures();

}  // namespace cuvmm::share
