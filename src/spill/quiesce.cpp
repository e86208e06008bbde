// SPDX-License-Identifier: Apache-2.0
#include "spill/quiesce.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/not_cancelled.hpp"
#include "base/undo.hpp"

namespace cuvmm {
namespace {

enum class Ended : std::uint8_t { Well, TooLate, Unwanted };

// Waits in intervals, so that it soon notices when the result is no longer wanted.
Ended wait_in_parts(const std::function<bool(std::uint64_t)>& wait, std::uint64_t until,
                    const StillWanted& is_wanted) {
  constexpr std::uint64_t a_part = 20'000'000;  // ns
  for (;;) {
    const std::uint64_t part = std::min(until, now_ns() + a_part);
    if (wait(part)) return Ended::Well;
    if (part == until) return Ended::TooLate;
    if (!is_wanted()) return Ended::Unwanted;
  }
}

// An Error's text must live as long as the process. Keeps each text once. Not synchronised: only
// one thread at a time holds the program still.
const char* kept_text(const std::string& text) {
  struct Kept {
    std::string text;
    const Kept* next;
  };
  static const Kept* all = nullptr;
  for (const Kept* one = all; one != nullptr; one = one->next) {
    if (one->text == text) return one->text.c_str();
  }
  all = new Kept{text, all};
  return all->text.c_str();
}

// As named by the program or the system, for example "python".
std::string name_of_thread(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/comm";
  const Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  char name[32];
  const ssize_t got = file.is_open() ? ::read(file.number(), name, sizeof name) : 0;
  std::string text{name, static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

const char* which_call_is_late(const CallBarrier& calls) {
  const auto insider = calls.find_caller_inside();
  if (!insider) return "a call did not return in time";
  std::string text{insider->call ? std::string{info(*insider->call).name} : "a call"};
  text += " did not return in time, in thread " + std::to_string(insider->thread);
  if (const std::string name = name_of_thread(insider->thread); !name.empty()) {
    text += " (" + name + ")";
  }
  return kept_text(text);
}

const char* which_capture_is_late(const Captures& captures) {
  const auto origin = captures.oldest();
  if (!origin || origin->thread != 0) return "a stream capture did not end in time";
  char text[80];
  std::snprintf(text, sizeof text, "the capture of stream %p did not end in time",
                static_cast<const void*>(origin->handle));
  return kept_text(text);
}

bool has_capture(const ProgramParts& program) {
  return program.captures != nullptr && program.captures->any();
}

// Looks often, since some programs begin the next capture as soon as one has ended.
bool captures_have_ended(const ProgramParts& program, std::uint64_t until) {
  constexpr useconds_t rest = 20;
  while (has_capture(program)) {
    if (now_ns() >= until) return false;
    rest_us(rest);
  }
  return true;
}

enum class Held : std::uint8_t { Calls, Nothing };

// Holds the calls once no stream is being captured. Holds nothing if a capture began after all: the
// calls that would end it have to go on.
Result<Held> hold_calls(const ProgramParts& program, const char* doing, std::uint64_t until,
                        const StillWanted& is_wanted) {
  const auto refused = [&](Ended ended, const char* why) {
    if (ended == Ended::Unwanted) return called_off(doing);
    return Error{.kind = ErrorKind::TimedOut, .doing = doing, .subject = why};
  };
  Ended ended = wait_in_parts(
      [&](std::uint64_t part) { return captures_have_ended(program, part); }, until, is_wanted);
  if (ended != Ended::Well) return refused(ended, which_capture_is_late(*program.captures));
  if (!program.calls.begin_shut(CallBarrier::Exempt::Nobody)) {
    return refused(Ended::TooLate, "cannot signal every thread");
  }
  Undo run_again{[&program] { end_quiescence(program); }};
  const auto have_returned = [&](std::uint64_t part) {
    return has_capture(program) || program.calls.has_drained(part);
  };
  ended = wait_in_parts(have_returned, until, is_wanted);
  if (ended != Ended::Well) return refused(ended, which_call_is_late(program.calls));
  if (has_capture(program)) return Held::Nothing;
  run_again.keep();
  return Held::Calls;
}

}  // namespace

const char* why_not_quiescible(const ProgramParts& program) {
  if (!program.memory.work().sees_everything()) {
    return "the program makes calls that cuvmm does not hook and cannot block";
  }
  if (program.memory.work().has_lost_a_context()) {
    return "its work has failed, and its context can no longer be used";
  }
  if (program.memory.live_moves().may_be_registered_by_address()) {
    return "its memory may be registered for transfers past the driver";
  }
  return nullptr;
}

Result<void> quiesce(const ProgramParts& program, const char* doing, std::uint64_t calls_until,
                     std::uint64_t work_until, const StillWanted& is_wanted) {
  while (TRY(hold_calls(program, doing, calls_until, is_wanted)) == Held::Nothing) {
  }
  // The barrier does not hold back calls that bypass the hooks, and one may have been found only
  // now.
  if (const char* const why = why_not_quiescible(program)) {
    end_quiescence(program);
    return Error{.kind = ErrorKind::NotSupported, .doing = doing, .subject = why};
  }
  const char* what = "queued calls were not issued in time";
  Ended ended = wait_in_parts(program.settle_queued, work_until, is_wanted);
  if (ended == Ended::Well) {
    what = "work in flight did not finish in time";
    ended = wait_in_parts(
        [&](std::uint64_t until) { return program.memory.clock().wait_for_everything(until); },
        work_until, is_wanted);
  }
  if (ended == Ended::Well) return {};
  end_quiescence(program);
  if (ended == Ended::Unwanted) return called_off(doing);
  return Error{.kind = ErrorKind::TimedOut, .doing = doing, .subject = what};
}

}  // namespace cuvmm
