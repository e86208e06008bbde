// SPDX-License-Identifier: Apache-2.0
// cuvmm demo: shows what cuvmm does for programs that know nothing about it.
#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>

#include "cli/child.hpp"
#include "cli/commands.hpp"
#include "cli/driver_here.hpp"
#include "cli/install_places.hpp"
#include "cli/output.hpp"

namespace cuvmm::cli {
namespace {

namespace fs = std::filesystem;

struct DemoRequest {
  std::string folder = "demo-output";
  bool simulated = false;
  bool no_pictures = false;
};

// A program that fails with the driver's own memory and succeeds with cuvmm's.
struct Scene {
  const char* program;
  const char* name;   // in the names of its output files
  const char* words;  // what it does
};
constexpr Scene scenes[] = {
    {"frag_test", "frag", "fills the device, frees every second block, asks for one large one"},
};

struct Watched {
  const char* mode;
  const char* words;
};
constexpr Watched natively{"monitor", "with the driver's own memory"};
constexpr Watched served{"vmm", "the same program, its memory served by cuvmm"};

class Demo {
 public:
  Demo(const DemoRequest& request, std::string self)
      : request_(request), self_(std::move(self)), simulated_(request.simulated || !has_driver()) {}

  int show() {
    std::error_code error;
    fs::create_directories(request_.folder, error);
    if (error) {
      say(request_.folder + ": " + error.message());
      return exit_failed;
    }
    if (simulated_) ::unsetenv("CUDA_VISIBLE_DEVICES");  // it names cards
    heading(simulated_ ? "on the simulated driver, with 64 MiB of memory"
                       : "on this machine's card");
    for (const Scene& scene : scenes) {
      if (!play(scene)) return exit_failed;
    }
    say_where_the_pictures_are();
    return 0;
  }

 private:
  static void heading(const std::string& words) {
    fmt::print("\n{}\n", in_tone("== " + words, Tone::Strong, STDOUT_FILENO));
    std::fflush(stdout);
  }
  std::string file(const Scene& scene, const char* mode, const char* ending) const {
    return (fs::path{request_.folder} / fmt::format("graph_{}_{}{}", scene.name, mode, ending))
        .string();
  }

  // The program must fail natively, or there would be nothing to show.
  bool play(const Scene& scene) {
    const auto program = find_program(scene.program);
    if (!program) {
      say(program.error().text());
      return false;
    }
    heading(fmt::format("{} {}: {}", scene.program, scene.words, natively.words));
    if (run(scene, *program, natively) == 0) {
      say(fmt::format("{} succeeded with the driver's own memory", scene.program));
      return false;
    }
    heading(served.words);
    if (run(scene, *program, served) != 0) return false;
    if (!has_trace(scene, natively) || !has_trace(scene, served)) return false;
    draw(scene, {natively}, natively.mode, ".png");
    draw(scene, {served}, served.mode, ".png");
    draw(scene, {natively, served}, "before_after", ".html");
    return true;
  }

  int run(const Scene& scene, const std::string& program, const Watched& how) {
    const std::string trace = file(scene, how.mode, ".trace");
    // Keep the log of intended refusals out of the program's own output.
    const std::string log = file(scene, how.mode, ".log");
    std::error_code none;
    fs::remove(trace, none);
    fs::remove(log, none);
    std::vector<std::string> command{self_,     "run", "--quiet",    "--mode", how.mode,
                                     "--trace", trace, "--log-file", log};
    if (simulated_) command.push_back("--sim=memory=64M");
    command.insert(command.end(), {"--", program});
    return run_part(command).status;
  }

  bool has_trace(const Scene& scene, const Watched& how) const {
    const std::string trace = file(scene, how.mode, ".trace");
    std::error_code error;
    if (fs::file_size(trace, error) != 0 && !error) return true;
    say(trace + ": nothing was recorded; the disk may be full");
    return false;
  }

  void draw(const Scene& scene, std::initializer_list<Watched> traces, const char* name,
            const char* ending) {
    const bool needs_matplotlib = std::string_view{ending} == ".png";
    if (request_.no_pictures || (needs_matplotlib && lacks_matplotlib_)) return;
    const std::string picture = file(scene, name, ending);
    std::vector<std::string> command{self_, "plot", "--quiet", "-o", picture, "--"};
    for (const Watched& how : traces) command.push_back(file(scene, how.mode, ".trace"));
    if (run_part(command).status == 0) {
      pictures_.push_back(picture);
    } else {
      lacks_matplotlib_ = needs_matplotlib;
    }
  }

  void say_where_the_pictures_are() const {
    heading(
        "shown: scattered free memory served one large allocation, without a change to the "
        "program");
    for (const std::string& picture : pictures_) fmt::print("  {}\n", picture);
    if (pictures_.empty()) {
      fmt::print("  the traces are in {}; `cuvmm plot` draws them\n", request_.folder);
    }
  }

  const DemoRequest& request_;
  const std::string self_;
  const bool simulated_;
  bool lacks_matplotlib_ = false;
  std::vector<std::string> pictures_;
};

}  // namespace

void add_demo(CLI::App& app, int& exit_status) {
  auto request = std::make_shared<DemoRequest>();
  CLI::App* command = app.add_subcommand("demo", "show what cuvmm does, with pictures");
  command->footer(
      "Runs a program that fails for lack of contiguous memory, natively and under cuvmm, and "
      "draws\n"
      "both. On the card where there is one, else on the simulated driver; nothing is changed.\n"
      "\n"
      "Example:\n"
      "  cuvmm demo -o /tmp/demo");
  command->add_option("-o,--output", request->folder, "where traces and pictures go")
      ->type_name("FOLDER")
      ->capture_default_str();
  command->add_flag("--sim", request->simulated, "always use the simulated driver");
  command->add_flag("--no-pictures", request->no_pictures, "only run the programs");
  command->callback([request, &exit_status] {
    std::error_code error;
    const fs::path self = fs::read_symlink("/proc/self/exe", error);
    exit_status = error ? exit_failed : Demo{*request, self.string()}.show();
  });
}

}  // namespace cuvmm::cli
