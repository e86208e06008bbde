// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "cli/doctor/finding.hpp"

namespace cuvmm::cli {
namespace {

constexpr std::uint64_t longest_check_us = 20'000'000;

Findings failed(const Check& check, const std::string& how) {
  return {{Verdict::Bad, check.name, how, "run it again; if it stays, report it with --report"}};
}

std::string as_text(const Findings& findings) {
  auto list = nlohmann::json::array();
  for (const Finding& one : findings) {
    list.push_back({static_cast<int>(one.verdict), one.what, one.text, one.remedy});
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Findings from_text(const Check& check, const std::string& text) {
  const auto list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) return failed(check, "ended without an answer");
  Findings findings;
  for (const auto& one : list) {
    findings.push_back({static_cast<Verdict>(one[0].get<int>()), one[1], one[2], one[3]});
  }
  return findings;
}

[[noreturn]] void look_and_tell(const Check& check, const DoctorRequest& request, int pipe) {
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);  // keep a driver's output out of the answer
  const std::string text = as_text(check.look(request));
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t more = ::write(pipe, text.data() + done, text.size() - done);
    if (more <= 0) break;
    done += static_cast<std::size_t>(more);
  }
  _exit(0);
}

}  // namespace

Findings look_in_a_child(const Check& check, const DoctorRequest& request) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed(check, std::strerror(errno));
  Fd read_end{ends[0]};
  Fd write_end{ends[1]};
  const pid_t child = ::fork();
  if (child < 0) return failed(check, std::strerror(errno));
  if (child == 0) look_and_tell(check, request, write_end.number());
  write_end.close();

  std::string text;
  const std::uint64_t deadline = now_us() + longest_check_us;
  bool is_late = false;
  for (;;) {
    const std::uint64_t now = now_us();
    is_late = now >= deadline;
    if (is_late) break;
    pollfd answer{.fd = read_end.number(), .events = POLLIN, .revents = 0};
    if (::poll(&answer, 1, static_cast<int>((deadline - now) / 1000 + 1)) <= 0) continue;
    char part[4096];
    const ssize_t more = ::read(read_end.number(), part, sizeof part);
    if (more <= 0) break;
    text.append(part, static_cast<std::size_t>(more));
  }
  if (is_late) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (is_late) return failed(check, "gave no answer in 20 s");
  if (WIFSIGNALED(status)) {
    return failed(check, fmt::format("crashed: {}", strsignal(WTERMSIG(status))));
  }
  return from_text(check, text);
}

}  // namespace cuvmm::cli
