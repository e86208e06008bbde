// SPDX-License-Identifier: Apache-2.0
// cuvmm doctor: checks that this machine can run cuvmm, and suggests remedies.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/doctor/finding.hpp"
#include "cli/json_text.hpp"
#include "cli/output.hpp"
#include "cli/settings.hpp"
#include "cuvmm/version.h"

namespace cuvmm::cli {
namespace {

constexpr std::array checks{
    Check{"versions", &look_at_versions},    Check{"driver", &look_at_driver},
    Check{"CUDA runtime", &look_at_runtime}, Check{"preload", &look_at_doors},
    Check{"limits", &look_at_limits},        Check{"sockets", &look_at_sockets},
};

constexpr const char* name_of(Verdict verdict) {
  return verdict == Verdict::Good ? "good" : verdict == Verdict::Limited ? "limited" : "bad";
}

std::string sign_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::Good:
      return in_tone("✓", Tone::Good, STDOUT_FILENO);
    case Verdict::Limited:
      return in_tone("!", Tone::Doubtful, STDOUT_FILENO);
    case Verdict::Bad:
      return in_tone("✗", Tone::Bad, STDOUT_FILENO);
  }
  return {};
}

void print_lines(const Findings& findings) {
  for (const Finding& one : findings) {
    fmt::print("{} {:<24} {}\n", sign_of(one.verdict), one.what, one.text);
    if (!one.remedy.empty()) fmt::print("  {:<24} → {}\n", "", one.remedy);
  }
}

void print_json(const Findings& findings) {
  auto list = nlohmann::json::array();
  for (const Finding& one : findings) {
    const std::string what =
        one.what.substr(std::min(one.what.find_first_not_of(' '), one.what.size()));
    list.push_back({{"what", what},
                    {"verdict", name_of(one.verdict)},
                    {"text", one.text},
                    {"remedy", one.remedy}});
  }
  const nlohmann::json all = {{"schema", 1}, {"version", CUVMM_VERSION_STRING}, {"findings", list}};
  fmt::print("{}\n", json_text(all));
}

// Prints only the remedies.
void print_hints(const Findings& findings) {
  for (const Finding& one : findings) {
    if (!one.remedy.empty()) fmt::print("{}: {}\n", one.what, one.remedy);
  }
}

// Prints a report for a bug tracker: without colours, and with our environment variables.
void print_report(const Findings& findings) {
  fmt::print("```\n");
  for (const Finding& one : findings) {
    fmt::print("{:<9} {:<24} {}\n", name_of(one.verdict), one.what, one.text);
  }
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text{*variable};
    for (const char* ours : {"VMM_", "CUVMM_", "LD_PRELOAD=", "CUDA_VISIBLE_DEVICES="}) {
      if (text.starts_with(ours)) fmt::print("{:<9} {}\n", "set", text);
    }
  }
  fmt::print("```\n");
}

enum class Form { Lines, Hints, Json, Report };

int examine(const DoctorRequest& request, Form form) {
  Findings findings;
  for (const Check& check : checks) {
    const Findings more = look_in_a_child(check, request);
    if (form == Form::Lines) {
      print_lines(more);
      std::fflush(stdout);
    }
    findings.insert(findings.end(), more.begin(), more.end());
  }
  if (form == Form::Hints) print_hints(findings);
  if (form == Form::Json) print_json(findings);
  if (form == Form::Report) print_report(findings);
  const bool is_bad = std::any_of(findings.begin(), findings.end(),
                                  [](const Finding& one) { return one.verdict == Verdict::Bad; });
  return is_bad ? 1 : 0;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_status) {
  struct Request {
    DoctorRequest about;
    std::string simulation;
    bool json = false;
    bool hints = false;
    bool report = false;
    bool doors = false;
  };
  auto request = std::make_shared<Request>();
  CLI::App* command = app.add_subcommand("doctor", "check that this machine can run cuvmm");
  command->footer(
      "✓ good   ! limited   ✗ must be fixed\n"
      "\n"
      "Examples:\n"
      "  cuvmm doctor\n"
      "  cuvmm doctor --fix-hints\n"
      "  cuvmm doctor --report >> issue.md\n"
      "\n"
      "Exit status: 1 if there is a ✗, else 0.");
  add_sim_flag(*command, request->simulation,
               "check with the simulated driver; --sim=devices=2,memory=8G sets what it has");
  auto* json = command->add_flag("--json", request->json, "as JSON");
  auto* report =
      command->add_flag("--report", request->report, "print a report to attach to a bug");
  report->excludes(json);
  command->add_flag("--fix-hints", request->hints, "print only the remedies, one a line")
      ->excludes(json)
      ->excludes(report);
  command->add_flag("--doors", request->doors, "")
      ->group("");  // internal; used under the preload library
  command->callback([request, &exit_status] {
    if (request->doors) {
      exit_status = try_doors();
      return;
    }
    request->about.simulated = !request->simulation.empty();
    if (!set_simulation(request->simulation)) {
      exit_status = exit_usage;
      return;
    }
    exit_status = examine(request->about, request->json     ? Form::Json
                                          : request->report ? Form::Report
                                          : request->hints  ? Form::Hints
                                                            : Form::Lines);
  });
}

}  // namespace cuvmm::cli
