// SPDX-License-Identifier: Apache-2.0
// cuvmm pause, cuvmm resume: moves processes off their devices and back.
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/fd.hpp"
#include "base/option_types.hpp"
#include "base/size.hpp"
#include "checkpoint/deep_pause.hpp"
#include "cli/child.hpp"
#include "cli/commands.hpp"
#include "cli/json_text.hpp"
#include "cli/launched.hpp"
#include "cli/output.hpp"
#include "cli/pause_together.hpp"
#include "share/control.hpp"
#include "share/process.hpp"
#include "share/system_error.hpp"

namespace cuvmm::cli {
namespace {

// Exit statuses besides 0 and wrong usage.
constexpr int some_refused = 1;
constexpr int paused_on_devices = 3;  // by --deep

using checkpoint::CheckpointEnd;
using checkpoint::CheckpointTimes;
using checkpoint::DeepPauseOutcome;
using checkpoint::is_simulated;
using share::ControlAnswer;
using share::ControlOutcome;
using share::ControlRequest;
using share::ControlWhat;

struct PauseRequest {
  ControlWhat what;
  std::vector<int> processes;
  bool all = false;
  bool strict = false;
  bool partly = false;
  bool deep = false;
  bool json = false;
  bool list = false;
  std::string timeout = "10s";
};

bool is_running(int process) {
  return process > 0 && (::kill(process, 0) == 0 || errno != ESRCH);
}

// Whether the process was already in the state that the request asks for.
bool changed_nothing(const PauseRequest& request, const ControlAnswer& answer) {
  return answer.before ==
         (request.what == ControlWhat::Pause ? share::Before::Paused : share::Before::Running);
}

void print_done(const PauseRequest& request, int process, const ControlAnswer& answer) {
  const bool paused = request.what == ControlWhat::Pause;
  if (changed_nothing(request, answer)) {
    fmt::print("{}: {}\n", process,
               paused ? "is already paused: " + print_size(answer.moved) + " off the device"
                      : "was not paused");
    return;
  }
  fmt::print("{}: {}: {} in {:.1f} ms, held for {:.1f} ms{}\n", process,
             paused ? "paused" : "resumed", print_size(answer.moved),
             static_cast<double>(answer.took_us) / 1000, static_cast<double>(answer.held_us) / 1000,
             is_simulated(process) ? " (simulated)" : "");
  const auto ms = [](std::uint64_t us) { return static_cast<double>(us) / 1000; };
  fmt::print(
      "{}: of that, for calls and work {:.1f}, host memory {:.1f}, copies {:.1f}, mapping {:.1f}, "
      "device memory {:.1f} ms\n",
      process, ms(answer.drain_us), ms(answer.host_us), ms(answer.copies_us), ms(answer.maps_us),
      ms(answer.chunks_us));
  if (answer.stayed == 0) return;
  fmt::print("{}: {} stays on the {}: {}\n", process, print_size(answer.stayed),
             paused ? "device" : "host", answer.text.data());
}

void print_times(int process, const char* what, const CheckpointTimes& times) {
  const auto ms = [](std::uint64_t us) { return static_cast<double>(us) / 1000; };
  fmt::print("{}: {} in {:.1f} ms{}\n", process, what,
             ms(times.lock_us + times.checkpoint_us + times.restore_us + times.unlock_us),
             is_simulated(process) ? " (simulated)" : "");
}

void print_deep(int process, const DeepPauseOutcome& outcome) {
  if (outcome.end == CheckpointEnd::OnDevices) {
    fmt::print("{}: its contexts and modules stay on the device: {}\n", process, outcome.why);
    return;
  }
  const Size bytes = checkpoint::sum_of(outcome.left);
  const std::string left = bytes != 0 ? print_size(bytes) + " of " : "";
  print_times(process, ("off the device: " + left + "contexts and modules").c_str(), outcome.times);
}

// A process that is missing or has no control socket is named by its subject alone.
std::string why_unreachable(const Error& error) {
  return error.kind == ErrorKind::NotFound ? error.subject : error.text();
}

nlohmann::json as_json(int process, const Result<ControlAnswer>& answer) {
  const ControlAnswer said = answer.ok() ? *answer : ControlAnswer{};
  const bool done = said.outcome == ControlOutcome::Done;
  return {{"process", process},
          {"done", done},
          {"paused", said.is_paused != 0},
          {"was_paused", said.before == share::Before::Unknown
                             ? nlohmann::json(nullptr)
                             : nlohmann::json(said.before == share::Before::Paused)},
          {"off_devices", said.presence == share::Presence::OffDevices},
          {"moved_bytes", said.moved},
          {"stayed_bytes", said.stayed},
          {"took_us", said.took_us},
          {"held_us", said.held_us},
          {"drain_us", said.drain_us},
          {"host_us", said.host_us},
          {"copies_us", said.copies_us},
          {"maps_us", said.maps_us},
          {"chunks_us", said.chunks_us},
          {"text", printable(answer.ok() ? std::string{said.text.data()}
                                         : why_unreachable(answer.error()))}};
}

void add_times(nlohmann::json& one, const CheckpointTimes& times) {
  one["lock_us"] = times.lock_us;
  one["checkpoint_us"] = times.checkpoint_us;
  one["restore_us"] = times.restore_us;
  one["unlock_us"] = times.unlock_us;
}

// With --all, a process that has ended since it was listed is no failure. One that is about to end
// has already closed its control socket.
bool has_ended_meanwhile(const PauseRequest& request, int process, const Error& error) {
  if (!request.all) return false;
  return error.kind == ErrorKind::NotFound || share::says_gone(error) || !is_running(process);
}

int complain(int process, const std::string& why) {
  say(fmt::format("{}: {}", process, why));
  return some_refused;
}

std::string why_not_done(const ControlAnswer& answer) {
  std::string why = answer.text.data();
  const bool says_so = why.find("stays paused") != std::string::npos;
  if (answer.is_paused != 0 && !says_so) why += "; it is still paused; `cuvmm resume` continues it";
  return why;
}

// The rest of `pause --deep`, once the process is paused.
int pause_deeply(checkpoint::Libraries& libraries, const PauseRequest& request, int process,
                 Duration timeout, nlohmann::json& one) {
  const DeepPauseOutcome outcome = checkpoint::take_off_devices(
      libraries, process, timeout, checkpoint::by_control_socket(process));
  const bool is_off = outcome.end == CheckpointEnd::OffDevices;
  one["off_devices"] = is_off;
  one["left_bytes"] = checkpoint::sum_of(outcome.left);
  one["why_on_devices"] = printable(outcome.why);
  add_times(one, outcome.times);
  if (outcome.end == CheckpointEnd::Unknown) {
    one["done"] = false;
    return complain(process, outcome.why + "; `cuvmm resume` goes on from here");
  }
  if (outcome.is_resumed) {
    one["done"] = false;
    one["paused"] = false;
    return complain(process, "another command has resumed it meanwhile");
  }
  if (!request.json) print_deep(process, outcome);
  return is_off ? 0 : paused_on_devices;
}

ControlRequest request_words(const PauseRequest& request, Duration timeout) {
  ControlRequest words;
  words.what = request.what;
  words.timeout_us = static_cast<std::uint64_t>(timeout.count());
  if (request.strict) words.flags |= share::control_flag::strict;
  if (request.partly) words.flags |= share::control_flag::partly;
  return words;
}

struct Answered {
  Result<ControlAnswer> answer;
  std::string why_off_devices = {};  // if it could not return to them
  std::optional<CheckpointTimes> times = {};
};

// Copying comes on top of the wait for running work.
share::Deadline deadline_of(Duration timeout) {
  constexpr Duration for_copies{600ll * 1'000'000};
  return share::Deadline::after(timeout + for_copies);
}

// A process that is off its devices refuses to resume before it is back.
Answered tell_process(const PauseRequest& request, int process, Duration timeout) {
  const ControlRequest words = request_words(request, timeout);
  const auto ask = [&] { return share::tell(process, words, deadline_of(timeout)); };
  Answered told{ask()};
  // More than once if another command takes it off its devices meanwhile.
  for (int tries = 0; tries < 3 && request.what == ControlWhat::Resume; ++tries) {
    if (!told.answer.ok() || told.answer->presence == share::Presence::OnDevices) break;
    const auto back =
        checkpoint::return_to_devices(process, checkpoint::by_control_socket(process));
    if (!back.is_back()) {
      told.why_off_devices = back.why;
      break;
    }
    if (back.times) told.times = back.times;
    told.answer = ask();
  }
  return told;
}

// Why a process is not even asked.
std::optional<Error> why_not_asked(const PauseRequest& request, int process) {
  if (!request.all && !is_running(process)) {
    return Error{.kind = ErrorKind::NotFound, .subject = "no such process"};
  }
  if (share::state_of(process).is_stopped) {
    return Error{.kind = ErrorKind::NotAvailable,
                 .subject = "the process is stopped and cannot answer; `kill -CONT` continues it"};
  }
  return {};
}

// The answers of processes that have been asked to pause together.
using AnswersTogether = std::map<int, Result<ControlAnswer>>;

AnswersTogether ask_together(const PauseRequest& request, const std::vector<int>& processes,
                             Duration timeout) {
  std::vector<int> asked;
  for (const int process : processes) {
    if (!why_not_asked(request, process)) asked.push_back(process);
  }
  return pause_together(asked, request_words(request, timeout), timeout, deadline_of(timeout));
}

// Returns the exit status for this process.
int tell_one(const PauseRequest& request, int process, Duration timeout,
             const AnswersTogether& together, nlohmann::json& all) {
  const auto answered = together.find(process);
  const bool has_answered = answered != together.end();
  if (const auto why = why_not_asked(request, process); why && !has_answered) {
    all.push_back(as_json(process, *why));
    return complain(process, why->subject);
  }
  std::optional<checkpoint::Libraries> libraries;
  if (request.deep) libraries.emplace(process, checkpoint::Libraries::For::Pause);
  const Answered told =
      has_answered ? Answered{answered->second} : tell_process(request, process, timeout);
  const auto& answer = told.answer;
  if (!answer.ok() && has_ended_meanwhile(request, process, answer.error())) return 0;
  nlohmann::json& one = all.emplace_back(as_json(process, answer));
  if (told.times) add_times(one, *told.times);
  if (!answer.ok()) return complain(process, why_unreachable(answer.error()));
  if (!told.why_off_devices.empty()) {
    one["text"] = printable(told.why_off_devices);
    return complain(process, told.why_off_devices + "; it stays paused, off its devices");
  }
  if (answer->outcome != ControlOutcome::Done) return complain(process, why_not_done(*answer));
  if (!request.json && told.times) print_times(process, "back on the device", *told.times);
  if (!request.json) print_done(request, process, *answer);
  return libraries ? pause_deeply(*libraries, request, process, timeout, one) : 0;
}

// Runs tell_one() in a child process, since the simulated driver gives a process only one card, and
// each of the processes may use a different one.
int tell_one_apart(const PauseRequest& request, int process, Duration timeout,
                   const AnswersTogether& together, nlohmann::json& all) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return tell_one(request, process, timeout, together, all);
  const Fd reads{ends[0]};
  Fd writes{ends[1]};
  std::fflush(nullptr);
  const pid_t here = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return tell_one(request, process, timeout, together, all);
  if (child == 0) {
    end_with_parent(here);
    auto told = nlohmann::json::array();
    const int status = tell_one(request, process, timeout, together, told);
    std::fflush(nullptr);
    const std::string text = json_text(told);
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t more = ::write(writes.number(), text.data() + sent, text.size() - sent);
      if (more <= 0) break;
      sent += static_cast<std::size_t>(more);
    }
    ::_exit(status);
  }
  writes.close();
  std::string text;
  char part[4096];
  for (ssize_t got = 0; (got = ::read(reads.number(), part, sizeof part)) > 0;) {
    text.append(part, static_cast<std::size_t>(got));
  }
  int ended = 0;
  ::waitpid(child, &ended, 0);
  const auto told = nlohmann::json::parse(text, nullptr, false);
  for (const auto& one : told.is_array() ? told : nlohmann::json::array()) all.push_back(one);
  return WIFEXITED(ended) ? WEXITSTATUS(ended) : complain(process, "the request was cut off");
}

// The program's command line; empty if it is not accessible.
std::string command_of(int process) {
  std::ifstream file{share::proc_folder_of(process) + "/cmdline", std::ios::binary};
  std::string words{std::istreambuf_iterator<char>{file}, {}};
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return printable(words);
}

void print_processes(const nlohmann::json& processes) {
  fmt::print("{}\n", json_text({{"schema", 1}, {"processes", processes}}));
}

void say_that_there_is_none() {
  say("no program of this user can be paused or resumed; `cuvmm run --control` starts one that "
      "can");
}

// The lines are also used by completions: a PID, a tab and a command, the format that fish expects.
int list_processes(bool json) {
  auto listed = nlohmann::json::array();
  const std::vector<pid_t> processes = share::controlled_processes();
  if (processes.empty()) say_that_there_is_none();
  for (const pid_t process : processes) {
    const std::string command = command_of(process);
    if (json) {
      listed.push_back({{"process", process}, {"command", command}});
    } else {
      fmt::print("{}\t{}\n", process, command);
    }
  }
  if (json) print_processes(listed);
  return 0;
}

// Each once. In place of a launcher that cannot be paused itself, the programs that it has started.
std::vector<int> programs_of(const std::vector<int>& named) {
  const std::vector<pid_t> controlled = share::controlled_processes();
  std::vector<int> programs;
  for (const int process : named) {
    std::vector<pid_t> started;
    const bool is_program =
        std::find(controlled.begin(), controlled.end(), process) != controlled.end();
    if (!is_program && is_launcher(process)) started = started_by(process, controlled);
    if (started.empty()) started.push_back(process);
    for (const pid_t one : started) {
      if (std::find(programs.begin(), programs.end(), one) == programs.end()) {
        programs.push_back(one);
      }
    }
  }
  return programs;
}

int tell_all(const PauseRequest& request) {
  if (request.list) return list_processes(request.json);
  const auto timeout = OptionType<Duration>::read(request.timeout);
  if (!timeout) {
    say(fmt::format("--timeout {}: allowed: {}", request.timeout, OptionType<Duration>::allowed()));
    return 2;
  }
  if (request.all != request.processes.empty()) {
    say(request.all ? "name processes or use --all, not both" : "name processes, or use --all");
    return exit_usage;
  }
  const std::vector<int> processes =
      request.all ? share::controlled_processes() : programs_of(request.processes);
  if (processes.empty()) say_that_there_is_none();
  int status = 0;
  auto all = nlohmann::json::array();
  AnswersTogether together;
  if (processes.size() > 1 && request.what == ControlWhat::Pause) {
    together = ask_together(request, processes, *timeout);
  }
  for (const int process : processes) {
    const bool is_apart = processes.size() > 1 && is_simulated(process);
    const int of_process = is_apart ? tell_one_apart(request, process, *timeout, together, all)
                                    : tell_one(request, process, *timeout, together, all);
    if (status != some_refused && of_process != 0) status = of_process;
  }
  if (request.json) print_processes(all);
  return status;
}

CLI::App* add(CLI::App& app, const char* name, const char* text, const char* timeout,
              const std::shared_ptr<PauseRequest>& request, int& exit_status) {
  CLI::App* command = app.add_subcommand(name, text);
  command->add_option("process", request->processes, "process IDs")
      ->check(is_process_id)
      ->type_name("PID");
  command->add_flag("--all", request->all, "every process of this user that accepts it");
  command->add_option("--timeout", request->timeout, timeout)
      ->type_name("TIME")
      ->capture_default_str();
  command->add_flag("--json", request->json, "print one JSON object");
  command->add_flag("--list", request->list, "only list the processes that accept it");
  command->callback([request, &exit_status] { exit_status = tell_all(*request); });
  return command;
}

}  // namespace

std::string is_process_id(const std::string& text) {
  constexpr std::size_t most_digits = 9;
  const bool is_number = !text.empty() && text.size() <= most_digits &&
                         text.find_first_not_of("0123456789") == std::string::npos;
  return is_number ? "" : printable(text) + " is not a process ID";
}

void add_pause(CLI::App& app, int& exit_status) {
  auto pause = std::make_shared<PauseRequest>();
  pause->what = ControlWhat::Pause;
  CLI::App* const command =
      add(app, "pause", "move a process's device memory to the host and block its CUDA calls",
          "how long to wait for running work", pause, exit_status);
  command
      ->footer(
          "Examples:\n"
          "  cuvmm run --control -- ./program &    a program that can be paused, also as $!\n"
          "  cuvmm pause --list                    lists them\n"
          "  cuvmm pause 4711                      its memory leaves the device, its CUDA calls "
          "block\n"
          "  cuvmm pause --deep 4711               its contexts and modules leave as well\n"
          "  cuvmm pause --all --timeout 60s       every program of this user\n"
          "\n"
          "Several processes are paused together, so that ranks of a job may wait for each other.\n"
          "\n"
          "Exit status: 0, or 1 if a program was not paused; it continues unaffected, unless the\n"
          "message says otherwise; with --deep 3 if a program is paused, but its contexts and\n"
          "modules stay.")
      ->add_flag("--strict", pause->strict,
                 "refuse if memory that a pause moves cannot leave the device");
  command->add_flag("--deep", pause->deep,
                    "then take contexts and modules off the device too (driver 570 or newer)");
  auto resume = std::make_shared<PauseRequest>();
  resume->what = ControlWhat::Resume;
  add(app, "resume", "move a paused process's memory back and let it continue",
      "how long to wait for the program's answer, or for other programs of cuvmmd to make room; "
      "copying may take 10m more",
      resume, exit_status)
      ->footer(
          "Examples:\n"
          "  cuvmm resume 4711             all of its memory returns to the device\n"
          "  cuvmm resume 4711 --partly    continue with what fits, the rest on the host\n"
          "  cuvmm resume --all\n"
          "\n"
          "Exit status: 0, or 1 if a program could not be resumed; it stays paused.")
      ->add_flag("--partly", resume->partly,
                 "continue with what fits the device, the rest on the host");
}

}  // namespace cuvmm::cli
