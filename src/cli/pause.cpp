// SPDX-License-Identifier: Apache-2.0
// cuvmm pause, cuvmm resume: moves processes off their devices and back.
#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/option_types.hpp"
#include "base/size.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"
#include "share/control.hpp"
#include "share/system_error.hpp"

namespace cuvmm::cli {
namespace {

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
  bool json = false;
  bool list = false;
  std::string timeout = "10s";
};

bool is_running(int process) {
  return process > 0 && (::kill(process, 0) == 0 || errno != ESRCH);
}

// Whether the process runs on the simulated driver, so that its times are not a card's.
bool is_simulated(int process) {
  std::ifstream maps{fmt::format("/proc/{}/maps", process)};
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/cuvmm/sim/libcuda.so") != std::string::npos) return true;
  }
  return false;
}

void print_done(const PauseRequest& request, int process, const ControlAnswer& answer) {
  const bool paused = request.what == ControlWhat::Pause;
  fmt::print("{}: {}: {} in {:.1f} ms, held for {:.1f} ms{}\n", process,
             paused ? "paused" : "resumed", print_size(answer.moved),
             static_cast<double>(answer.took_us) / 1000, static_cast<double>(answer.held_us) / 1000,
             is_simulated(process) ? " (simulated)" : "");
  const auto ms = [](std::uint64_t us) { return static_cast<double>(us) / 1000; };
  fmt::print(
      "{}: of that: calls and work {:.1f}, host memory {:.1f}, copies {:.1f}, mapping {:.1f}, "
      "device memory {:.1f} ms\n",
      process, ms(answer.drain_us), ms(answer.host_us), ms(answer.copies_us), ms(answer.maps_us),
      ms(answer.chunks_us));
  if (answer.stayed == 0) return;
  fmt::print("{}: {} stay on the {}: {}\n", process, print_size(answer.stayed),
             paused ? "device" : "host", answer.text.data());
}

nlohmann::json as_json(int process, const Result<ControlAnswer>& answer) {
  const ControlAnswer said = answer.ok() ? *answer : ControlAnswer{};
  const bool done = said.outcome == ControlOutcome::Done;
  return {{"process", process},
          {"done", done},
          {"paused", said.is_paused != 0},
          {"moved_bytes", said.moved},
          {"stayed_bytes", said.stayed},
          {"took_us", said.took_us},
          {"held_us", said.held_us},
          {"drain_us", said.drain_us},
          {"host_us", said.host_us},
          {"copies_us", said.copies_us},
          {"maps_us", said.maps_us},
          {"chunks_us", said.chunks_us},
          {"text", printable(answer.ok() ? std::string{said.text.data()} : answer.error().text())}};
}

// With --all, a process that has ended since the listing does not count.
bool has_ended_meanwhile(const PauseRequest& request, int process, const Error& error) {
  return request.all && (share::says_gone(error) || !is_running(process));
}

// Returns whether the process did as requested.
bool tell_one(const PauseRequest& request, int process, Duration timeout, nlohmann::json& all) {
  ControlRequest words;
  words.what = request.what;
  words.timeout_us = static_cast<std::uint64_t>(timeout.count());
  if (request.strict) words.flags |= share::control_flag::strict;
  if (request.partly) words.flags |= share::control_flag::partly;
  if (!request.all && !is_running(process)) {
    constexpr const char* why = "no such process";
    all.push_back(as_json(process, Error{.kind = ErrorKind::NotFound, .subject = why}));
    fmt::print(stderr, "cuvmm: {}: {}\n", process, why);
    return false;
  }
  // Copying comes on top of the wait for running work.
  constexpr Duration for_copies{600ll * 1'000'000};
  const auto answer = share::tell(process, words, share::Deadline::after(timeout + for_copies));
  if (!answer.ok() && has_ended_meanwhile(request, process, answer.error())) return true;
  all.push_back(as_json(process, answer));
  if (!answer.ok()) {
    fmt::print(stderr, "cuvmm: {}: {}\n", process, answer.error().text());
    return false;
  }
  if (answer->outcome == ControlOutcome::Done) {
    if (!request.json) print_done(request, process, *answer);
    return true;
  }
  fmt::print(stderr, "cuvmm: {}: {}\n", process, answer->text.data());
  return false;
}

// The program's command line; empty if it is not accessible.
std::string command_of(int process) {
  std::ifstream file{fmt::format("/proc/{}/cmdline", process), std::ios::binary};
  std::string words{std::istreambuf_iterator<char>{file}, {}};
  while (!words.empty() && words.back() == '\0') words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return printable(words);
}

// Also used by completions: a PID, a tab and a command, the format that fish expects.
int list_processes() {
  for (const pid_t process : share::controlled_processes()) {
    fmt::print("{}\t{}\n", process, command_of(process));
  }
  return 0;
}

int tell_all(const PauseRequest& request) {
  if (request.list) return list_processes();
  const auto timeout = OptionType<Duration>::read(request.timeout);
  if (!timeout) {
    fmt::print(stderr, "cuvmm: --timeout {}: allowed is {}\n", request.timeout,
               OptionType<Duration>::allowed());
    return 2;
  }
  if (request.all != request.processes.empty()) {
    fmt::print(stderr, "cuvmm: name processes, or say --all\n");
    return 2;
  }
  std::vector<int> processes = request.processes;
  if (request.all) {
    for (const pid_t process : share::controlled_processes()) processes.push_back(process);
    if (processes.empty()) {
      say("no program of this user can be paused or resumed; `cuvmm run --control` starts one that "
          "can");
    }
  }
  bool done = true;
  auto all = nlohmann::json::array();
  for (const int process : processes) done = tell_one(request, process, *timeout, all) && done;
  if (request.json) fmt::print("{}\n", nlohmann::json{{"schema", 1}, {"processes", all}}.dump(2));
  return done ? 0 : 1;
}

CLI::App* add(CLI::App& app, const char* name, const char* text,
              const std::shared_ptr<PauseRequest>& request, int& exit_status) {
  CLI::App* command = app.add_subcommand(name, text);
  command->add_option("process", request->processes, "process numbers")->type_name("PID");
  command->add_flag("--all", request->all, "every process of this user that accepts it");
  command->add_option("--timeout", request->timeout, "how long to wait for running work")
      ->type_name("TIME")
      ->capture_default_str();
  command->add_flag("--json", request->json, "print one JSON object");
  command->add_flag("--list", request->list, "only list the processes that accept it");
  command->callback([request, &exit_status] { exit_status = tell_all(*request); });
  return command;
}

}  // namespace

void add_pause(CLI::App& app, int& exit_status) {
  auto pause = std::make_shared<PauseRequest>();
  pause->what = ControlWhat::Pause;
  add(app, "pause", "move a process's device memory to the host and block its CUDA calls", pause,
      exit_status)
      ->footer(
          "Examples:\n"
          "  cuvmm run --control -- ./program &    a program that can be paused\n"
          "  cuvmm pause --list                    which there are\n"
          "  cuvmm pause 4711                      its memory leaves the device, its CUDA calls "
          "block\n"
          "  cuvmm pause --all --timeout 60s       every program of this user\n"
          "\n"
          "Exit status: 0, or 1 where a program was not paused: it continues as if nothing had "
          "been\n"
          "asked.")
      ->add_flag("--strict", pause->strict, "refuse if some memory cannot leave the device");
  auto resume = std::make_shared<PauseRequest>();
  resume->what = ControlWhat::Resume;
  add(app, "resume", "move a paused process's memory back and let it continue", resume, exit_status)
      ->footer(
          "Examples:\n"
          "  cuvmm resume 4711             all of its memory returns to the device\n"
          "  cuvmm resume 4711 --partly    continue with what fits, the rest on the host\n"
          "  cuvmm resume --all\n"
          "\n"
          "Exit status: 0, or 1 where a program could not be resumed: it stays paused.")
      ->add_flag("--partly", resume->partly,
                 "continue with what fits the device, the rest on the host");
}

}  // namespace cuvmm::cli
