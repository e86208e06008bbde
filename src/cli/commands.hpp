// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

namespace cuvmm::cli {

// A check for options that take process IDs.
std::string is_process_id(const std::string& text);

// Each function adds its subcommand, whose callback sets `exit_status`.
void add_run(CLI::App& app, int& exit_status);
void add_cdi(CLI::App& app, int& exit_status);
void add_config(CLI::App& app, int& exit_status);
void add_set(CLI::App& app, int& exit_status);
void add_stats(CLI::App& app, int& exit_status);
void add_demo(CLI::App& app, int& exit_status);
void add_doctor(CLI::App& app, int& exit_status);
void add_plot(CLI::App& app, int& exit_status);
void add_metrics(CLI::App& app, int& exit_status);
void add_export(CLI::App& app, int& exit_status);
void add_generate(CLI::App& app, int& exit_status);
void add_pause(CLI::App& app, int& exit_status);
void add_top(CLI::App& app, int& exit_status);
void add_advise(CLI::App& app, int& exit_status);
void add_replay(CLI::App& app, int& exit_status);

}  // namespace cuvmm::cli
