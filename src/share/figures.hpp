// SPDX-License-Identifier: Apache-2.0
// A process's memory counts, published to other processes of its user (`cuvmm top`) through a file
// in that user's private folder. Nothing is written until someone asks: a reader increments the
// question number and wakes the process, which writes its answer under the same number.
//
// Both sides read and write the file by system calls and map it only to wait and to wake, so that
// truncating the file makes a call fail instead of killing a process.
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

// Byte counts, with the meanings of the counters of the same names.
struct DeviceFigures {
  std::uint32_t ordinal = 0;
  std::uint32_t reserved = 0;
  Size memory = 0;          // of the card
  Size limit = 0;           // all ones: none
  Size requested_live = 0;  // requested by the program and not freed
  Size cached = 0;          // held, but not in use
  Size physical = 0;        // physical memory of the device
  Size spilled = 0;         // in use elsewhere
  std::uint64_t moves = 0;  // chunks and blocks moved so far
  Size moved = 0;
  std::array<std::uint8_t, 16> uuid{};  // all zero: unknown
  std::uint64_t refusals = 0;           // allocations that found no memory, so far
  Size placed_in = 0;                   // migrated to the device because it was in use, so far
  Size placed_out = 0;                  // migrated away because it was not, so far
  Size spilled_hot = 0;                 // spilled although in use
};

// One arena, or a context's windows.
struct RegionFigures {
  std::uint32_t device = 0;  // its ordinal
  std::uint32_t blocks = 0;
  std::array<char, 40> what{};  // zero-terminated
  Size held = 0;                // physical memory, on the device and elsewhere
  Size used = 0;                // by live blocks
  Size cached = 0;              // by freed blocks kept for the next allocation of their size
  Size spilled = 0;             // part of `held`
  Size reserved = 0;            // addresses
};

// All pauses of the process so far, or all resumes.
struct PauseFigures {
  static constexpr std::array<std::uint64_t, 8> bounds_us{
      10'000, 30'000, 100'000, 300'000, 1'000'000, 3'000'000, 10'000'000, 30'000'000};
  static constexpr std::size_t bucket_count = bounds_us.size() + 1;
  static std::size_t bucket_of(std::uint64_t us) {
    std::size_t bucket = 0;
    while (bucket < bounds_us.size() && us > bounds_us[bucket]) ++bucket;
    return bucket;
  }

  std::array<std::uint64_t, bucket_count> counts{};  // the last bucket: longer than every bound
  std::uint64_t sum_us = 0;
  Size bytes = 0;  // moved in total
};

struct Figures {
  static constexpr std::size_t most_devices = 16;
  static constexpr std::size_t most_regions = 32;

  std::uint32_t checksum = 0;    // of the rest, so that a reader notices a write in progress
  std::uint32_t question = 0;    // the question this answers
  std::uint64_t time_us = 0;     // now_us()
  std::uint32_t is_counted = 0;  // 0: the driver manages the memory, so there are no counts
  std::uint32_t device_count = 0;
  std::uint32_t is_paused = 0;
  std::uint32_t region_count = 0;
  std::uint32_t regions_left_out = 0;  // the smallest, by `held`
  std::uint32_t is_off_devices = 0;    // by the driver's checkpoint, while it is paused
  Size paused = 0;                     // bytes left on the host by a pause or a partial resume
  PauseFigures pauses;
  PauseFigures resumes;
  std::array<DeviceFigures, most_devices> devices{};
  std::array<RegionFigures, most_regions> regions{};  // those that hold the most first
};

// The publishing process. Texts are zero-terminated.
struct Publisher {
  std::uint64_t magic = 0;
  std::uint32_t version = figures_version;
  std::int32_t process = 0;
  std::uint64_t namespace_of_process = 0;  // inode of the pid namespace; pids are unique within one
  std::uint64_t start_ticks = 0;  // start time, which distinguishes processes that reuse a pid
  std::array<char, 32> library_version{};
  std::array<char, 16> mode{};
  std::array<char, 64> name{};  // VMM_NAME
  std::array<char, 256> command{};

  // Describes this process, except for its mode and library version.
  static Publisher of_this_process();
};

// The layout of the file.
struct FiguresLayout {
  Publisher publisher;
  std::uint32_t question = 0;
  std::uint32_t reserved = 0;
  Figures answer;
};
static_assert(sizeof(FiguresLayout) <= 8192);

// The publishing side. It has no thread of its own: it works while the caller waits in it.
class PublishedFigures {
 public:
  static Result<PublishedFigures> publish(const Publisher& publisher);
  PublishedFigures(PublishedFigures&& other) noexcept;
  PublishedFigures& operator=(PublishedFigures&&) = delete;
  ~PublishedFigures();

  // Waits until someone asks, for at most `at_most`. Returns the question, or nothing if nobody
  // asked. NotFound if the file is gone or has been replaced, so nobody can ask again. Any other
  // Error may be transient: the question is still in the file.
  Result<std::optional<std::uint32_t>> wait_for_question(Duration at_most);
  Result<void> answer(Figures figures, std::uint32_t question);

  // Removes the file. For the end of the process that made it.
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

// A process that publishes figures, found by its own mapping of the file: any user's, in any
// container.
struct FiguresMapping {
  pid_t process = 0;  // as this process's namespace numbers it
  // /proc/PID/map_files/START-END: opens the mapped file itself, so that the other user's folders
  // and links are never followed.
  std::string link;

  friend bool operator==(const FiguresMapping&, const FiguresMapping&) = default;
};

// The reading side, for one process. Nothing in the file is trusted: texts are terminated, counts
// are bounded, and all else is only shown.
class SeenFigures {
 public:
  // InvalidArgument if others may access the file, or if it is not a figures file.
  static Result<SeenFigures> open(const std::string& path);
  // Also InvalidArgument if the file does not belong to the process's user. Writes no more to it
  // than the question, and never removes it.
  static Result<SeenFigures> open(const FiguresMapping& mapping);
  SeenFigures(SeenFigures&& other) noexcept;
  SeenFigures& operator=(SeenFigures&& other) noexcept;
  ~SeenFigures();

  const std::string& path() const { return path_; }
  std::optional<FileIdentity> file() const { return FileIdentity::of(file_.number()); }
  const Publisher& publisher() const { return publisher_; }
  // As this process's namespace numbers it if is_numbered_here(), otherwise as its own does.
  pid_t process() const { return process_; }
  bool is_numbered_here() const;
  uid_t user() const { return user_; }
  void ask();
  // Reads the file; true once the last question is answered and figures() is up to date.
  bool look();
  // The last answer; its question is 0 if there has been none.
  const Figures& figures() const { return figures_; }
  // Removes the file that an ended process left behind in this user's folders.
  void remove_file() const;
  // True if the process has ended or now runs another program. False if that cannot be determined.
  bool has_ended() const;

 private:
  SeenFigures(std::string path, Fd file, void* mapping, const Publisher& publisher);
  static Result<SeenFigures> open_file(const std::string& path, int follows, uid_t user);
  bool is_answered() const;
  bool is_found_by_mapping() const { return path_.starts_with("/proc/"); }

  std::string path_;
  Fd file_;
  void* mapping_;
  Publisher publisher_;
  pid_t process_;
  std::uint64_t start_ticks_;
  uid_t user_ = 0;
  std::uint32_t question_ = 0;
  Figures figures_;
};

// The figures files in this user's folders, unordered, and the folders that could not be read, with
// the reason. A missing folder is not a problem.
struct FiguresFiles {
  std::vector<std::string> paths;
  std::vector<std::string> problems;
};
FiguresFiles find_figures();

// The processes of all users that publish figures, unordered, at most one file each. A process
// whose mappings this one may not read is left out.
std::vector<FiguresMapping> find_figures_mappings();

}  // namespace cuvmm::share
