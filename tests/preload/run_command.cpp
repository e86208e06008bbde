// SPDX-License-Identifier: Apache-2.0
// cuvmm run: what a shell sees of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "base/processor.h"
#include "cuvmm/version.h"

#include "preload/run_program.hpp"
#include "preload/traces.hpp"

namespace cuvmm::test {
namespace {

Finished run(const std::vector<std::string>& words, const Variables& variables = {}) {
  std::vector<std::string> command{cli(), "run"};
  command.insert(command.end(), words.begin(), words.end());
  return run_program(command, variables);
}

TEST(RunCommand, PassesOnTheExitStatus) {
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "exit 0"}).status, 0);
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "exit 7"}).status, 7);
}

// Some parents leave SIGCHLD ignored. The program finds it as the parent left it.
TEST(RunCommand, PassesOnTheExitStatusIfSigchldIsIgnored) {
  const auto run_so = [](const std::string& what) {
    return run_program({"bash", "-c", "trap '' CHLD; exec " + cli() + " run --sim -- " + what});
  };
  EXPECT_EQ(run_so("sh -c 'exit 7'").status, 7);
  const Finished finished = run_so("grep SigIgn /proc/self/status");
  const auto at = finished.out.find_last_of(" \t");
  ASSERT_NE(at, std::string::npos) << finished.out;
  EXPECT_NE(std::stoull(finished.out.substr(at + 1), nullptr, 16) & 1ull << (SIGCHLD - 1), 0u);
}

TEST(RunCommand, SaysWhichSignalEndedTheProgram) {
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "kill -TERM $$"}).status, 128 + SIGTERM);
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "kill -KILL $$"}).status, 128 + SIGKILL);
}

TEST(RunCommand, PassesOnSignals) {
  const std::string waits_for_a_signal =
      "trap 'echo got it; exit 9' USR1; kill -USR1 $PPID; "
      "for i in $(seq 300); do sleep 0.1; done; exit 1";
  const Finished finished =
      run({"--sim", "--trace", own_folder() + "/t", "--", "sh", "-c", waits_for_a_signal});
  EXPECT_EQ(finished.out, "got it\n");
  EXPECT_EQ(finished.status, 9);
}

TEST(RunCommand, SaysWhenThereIsNoSuchProgram) {
  EXPECT_EQ(run({"--sim", "--", "/nonexistent/program"}).status, 127);
}

TEST(RunCommand, SaysWhenTheProgramCannotBeExecuted) {
  EXPECT_EQ(run({"--sim", "--", "/etc/passwd"}).status, 126);
}

TEST(RunCommand, SaysWhenTheProgramIsAFolder) {
  const Finished finished = run({"--sim", "--", "/etc"});
  EXPECT_EQ(finished.status, 126);
  EXPECT_NE(finished.err.find("/etc"), std::string::npos) << finished.err;
}

TEST(RunCommand, AnswersWith125WhenItsOwnPartsAreMissing) {
  const std::string lonely = own_folder() + "/cuvmm";
  std::filesystem::copy_file(cli(), lonely);
  const Finished finished = run_program({lonely, "run", "--", "true"});
  EXPECT_EQ(finished.status, 125);
  EXPECT_NE(finished.err.find("libcuvmm_preload.so"), std::string::npos) << finished.err;
}

TEST(RunCommand, FindsItsPartsWhereverTheyAreCarriedTo) {
  namespace fs = std::filesystem;
  struct Place {
    const char* programs;
    const char* libraries;
  };
  for (const Place& place :
       {Place{"bin", "lib"}, Place{"bin", CUVMM_LIBRARY_FOLDER}, Place{"", ""}}) {
    const fs::path root = own_folder();
    const fs::path library = root / place.libraries / "libcuvmm_preload.so";
    fs::create_directories(root / place.programs);
    fs::create_directories(root / place.libraries);
    fs::copy_file(cli(), root / place.programs / "cuvmm");
    fs::copy_file(preload_library(), library);
    const Finished finished = run_program(
        {root / place.programs / "cuvmm", "run", "--", "sh", "-c", "echo $LD_PRELOAD"}, natively());
    EXPECT_EQ(finished.status, 0) << finished.err;
    EXPECT_EQ(finished.out, library.string() + "\n");
  }
}

TEST(RunCommand, SaysWhenItsPartsAreOfDifferentVersions) {
  namespace fs = std::filesystem;
  const fs::path place = own_folder();
  fs::create_directories(place / "bin");
  fs::create_directories(place / "lib");
  fs::copy_file(cli(), place / "bin/cuvmm");
  std::ifstream from{preload_library(), std::ios::binary};
  std::string library{std::istreambuf_iterator<char>{from}, {}};
  const std::string note = std::string{"cuvmm\0\0\0", 8} + CUVMM_VERSION_STRING;
  const auto at = library.find(note);
  ASSERT_NE(at, std::string::npos);
  library[at + note.size() - 1] ^= 1;  // the last digit
  std::ofstream{place / "lib/libcuvmm_preload.so", std::ios::binary} << library;

  const Finished finished =
      run_program({(place / "bin/cuvmm").string(), "run", "--", "true"}, natively());

  EXPECT_EQ(finished.status, 0);
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  EXPECT_NE(finished.err.find("another version"), std::string::npos) << finished.err;
}

TEST(RunCommand, SuggestsTheSimulatedDriverWithoutAGpu) {
  if (run_program({cli(), "run", "--", "true"}).err.empty()) {
    GTEST_SKIP() << "this machine has a driver";
  }
  const Finished finished = run({"--", "sh", "-c", "exit 5"});
  EXPECT_EQ(finished.status, 5);
  EXPECT_NE(finished.err.find("--sim"), std::string::npos) << finished.err;
  EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
}

TEST(RunCommand, SaysWhereTheTraceIsWhenItsNameWasTaken) {
  const std::string here = own_folder() + "/run.trace";
  const auto once = [&] {
    return run(
        {"--sim", "--quiet", "--mode", "monitor", "--trace", here, "--", program("life"), "plain"});
  };
  EXPECT_EQ(once().err, "");
  const Finished second = once();
  const std::string beginning = "cuvmm: " + here + " already exists; the trace is in " + here + ".";
  ASSERT_TRUE(second.err.starts_with(beginning)) << second.err;
  const std::string instead =
      second.err.substr(beginning.size() - here.size() - 1, std::string::npos);
  EXPECT_EQ(memory_events(instead.substr(0, instead.size() - 1)).allocations, 1u);
}

TEST(RunCommand, SummarizesARunWithATrace) {
  const std::string here = own_folder() + "/a run.trace";
  const Finished finished = run({"--sim=memory=64M", "--trace", here, "--", example("frag_test")});
  EXPECT_EQ(finished.status, 0);
  EXPECT_NE(finished.err.find("peak requested         64.0 MiB"), std::string::npos)
      << finished.err;
  EXPECT_NE(finished.err.find("cuvmm advise '" + here + "'"), std::string::npos) << finished.err;
  const std::string summary = finished.err.substr(finished.err.find("cuvmm: "));
  EXPECT_LE(lines_in(summary), 12U) << summary;
}

TEST(RunCommand, NamesTheTraceOfThisProcessByItsPid) {
  const std::string folder = own_folder();
  const Finished finished =
      run({"--sim", "--trace", folder + "/%p.trace", "--", program("life"), "plain"});
  EXPECT_NE(finished.err.find("peak requested"), std::string::npos) << finished.err;
}

TEST(RunCommand, SummarizesTracesNamedByPidOfAShellsChildren) {
  const std::string folder = own_folder();
  const Finished finished = run({"--sim", "--trace", folder + "/%p.trace", "--", "sh", "-c",
                                 program("life") + " plain; true"});
  EXPECT_NE(finished.err.find("peak requested"), std::string::npos) << finished.err;
}

// The inner command is another run, which overlaps with the outer one.
TEST(RunCommand, ReportsNoTraceOfAnotherRun) {
  const std::string here = own_folder() + "/run.trace";
  const Finished finished = run(
      {"--sim", "--trace", here, "--", "sh", "-c",
       cli() + " run -q --sim -- " + program("life") + " plain; " + program("life") + " plain"});
  EXPECT_NE(finished.err.find("peak requested"), std::string::npos) << finished.err;
  EXPECT_NE(finished.err.find("cuvmm plot " + here + "."), std::string::npos) << finished.err;
  EXPECT_NE(finished.err.find(" -o run.trace.png\n"), std::string::npos) << finished.err;
  EXPECT_EQ(finished.err.find("child"), std::string::npos) << finished.err;
}

TEST(RunCommand, RefusesAFolderInWhichNoTraceCanBeCreated) {
  const std::string folder = own_folder() + "/none";
  const Finished finished =
      run({"--sim", "--trace", folder + "/run.trace", "--", "echo", "started"});
  EXPECT_EQ(finished.status, 125);
  EXPECT_EQ(finished.out, "");
  EXPECT_NE(finished.err.find("there is no folder " + folder), std::string::npos) << finished.err;
}

TEST(RunCommand, LetsFrameworksUseTheDriver) {
  const std::string show =
      "echo $PYTORCH_CUDA_ALLOC_CONF $PYTORCH_ALLOC_CONF $XLA_PYTHON_CLIENT_ALLOCATOR";
  const Finished finished = run({"--sim", "--frameworks", "--", "sh", "-c", show});
  EXPECT_EQ(finished.out, "backend:cudaMallocAsync backend:cudaMallocAsync cuda_async\n");
  EXPECT_EQ(lines_in(finished.err), 2U) << finished.err;

  const Finished chosen = run({"--sim", "--frameworks", "--", "sh", "-c", show},
                              {{"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"}});
  EXPECT_EQ(chosen.out, "expandable_segments:True cuda_async\n");
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", show}).out, "\n");
}

// Only the library's name counts, not its place.
TEST(RunCommand, SuggestsFrameworksOnceToAProgramThatBringsPyTorch) {
  const std::string here = own_folder();
  const std::string library = here + "/libc10_cuda.so";
  std::filesystem::copy_file(library_of_programs("plugin"), library);
  // It is looked at again after two seconds, when even a busy machine has loaded the library.
  const std::vector<std::string> waits{"sh", "-c", "sleep 5"};
  const Variables brings{{"LD_PRELOAD", library}};
  std::vector<std::string> words{"--sim", "--trace", here + "/t", "--"};
  words.insert(words.end(), waits.begin(), waits.end());
  const Finished finished = run(words, brings);
  EXPECT_EQ(lines_with(finished.err, "--frameworks"), 1U) << finished.err;
  words.insert(words.begin(), "--quiet");
  EXPECT_EQ(run(words, brings).err, "");
}

// The loader's variables separate names by blanks and colons.
TEST(RunCommand, RunsFromAFolderWithABlankAndAColon) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path{own_folder()} / "a place: ü";
  fs::create_directories(root / "bin");
  fs::create_directories(root / "lib/cuvmm");
  fs::copy_file(cli(), root / "bin/cuvmm");
  fs::copy_file(preload_library(), root / "lib/libcuvmm_preload.so");
  fs::create_directory_symlink(sim_directory(), root / "lib/cuvmm/sim");
  const Finished finished = run_program(
      {(root / "bin/cuvmm").string(), "run", "--sim=memory=64M", "--", example("frag_test")});
  EXPECT_EQ(finished.status, 0) << finished.out << finished.err;
}

TEST(RunCommand, LeavesTheCommandItsOptions) {
  EXPECT_EQ(run({"--sim", "--", "sh", "-c", "echo $1", "sh", "--mode"}).out, "--mode\n");
}

TEST(RunCommand, RefusesWrongUsage) {
  EXPECT_EQ(run({}).status, 2);
  EXPECT_EQ(run({"--sim"}).status, 2);
  EXPECT_EQ(run({"--no-such-option", "--", "true"}).status, 2);
  EXPECT_EQ(run({"--mode", "sideways", "--", "true"}).status, 2);
  EXPECT_EQ(run({"--limit", "-5G", "--", "true"}).status, 2);
  EXPECT_EQ(run({"--sim=devices=many", "--", "true"}).status, 2);
}

TEST(RunCommand, NamesTheOptionThatItRefuses) {
  const Finished finished = run({"--mode", "sideways", "--", "true"});
  EXPECT_NE(finished.err.find("VMM_MODE"), std::string::npos) << finished.err;
  EXPECT_NE(finished.err.find("sideways"), std::string::npos) << finished.err;
}

TEST(RunCommand, LetsProgramsShareASimulatedCard) {
  const Finished finished =
      run({"--sim=memory=1G,card=mine", "--", "sh", "-c", "echo $VMM_SIM_CARD $VMM_SIM_MEMORY"});
  EXPECT_EQ(finished.out, "mine 1G\n");
}

std::string preloads_of(const std::string& known) {
  return run({"--sim", "--", "sh", "-c", "echo $LD_PRELOAD"}, {{"LD_PRELOAD", known}}).out;
}

// Other tools see the program's calls first. A sanitizer's runtime must be first in the list, or it
// ends the program.
TEST(RunCommand, PreloadsTheLibraryBehindThoseOfOthers) {
  EXPECT_EQ(preloads_of(""), preload_library() + "\n");
  EXPECT_EQ(preloads_of("libm.so.6"), "libm.so.6:" + preload_library() + "\n");
  EXPECT_EQ(preloads_of("/nowhere/libasan.so.8 libm.so.6"),
            "/nowhere/libasan.so.8:libm.so.6:" + preload_library() + "\n");
  EXPECT_EQ(preloads_of(preload_library() + ":libm.so.6"), "libm.so.6:" + preload_library() + "\n");
}

TEST(RunCommand, PreloadsTheLibraryBeforeTheDriver) {
  EXPECT_EQ(
      preloads_of("libm.so.6:/nowhere/libcuda.so.1:/nowhere/libnvidia-ml.so.1"),
      "libm.so.6:" + preload_library() + ":/nowhere/libcuda.so.1:/nowhere/libnvidia-ml.so.1\n");
}

TEST(RunCommand, SetsOptionsByTheirNames) {
  const Finished finished =
      run({"--sim=devices=2,memory=1G", "--limit", "512M", "--log-level", "info", "--", "sh", "-c",
           "echo $VMM_SIM_DEVICES $VMM_SIM_MEMORY $VMM_LIMIT $VMM_LOG_LEVEL"});
  EXPECT_EQ(finished.out, "2 1G 512M info\n");
  EXPECT_EQ(finished.err, "");
}

TEST(RunCommand, SaysNothingOfItsOwn) {
  const Finished finished = run({"--sim", "--", "true"});
  EXPECT_EQ(finished.err, "");
}

TEST(RunCommand, RunsAProgramAndRecordsIt) {
  const std::string here = own_folder() + "/run.trace";
  const Finished finished =
      run({"--sim", "--mode", "monitor", "--trace", here, "--", program("memory"), "dlsym"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(memory_events(here).allocations, 12u);
  const Finished stats = run_program({cli(), "stats", "--json", here});
  EXPECT_EQ(stats.status, 0) << stats.err;
  EXPECT_NE(stats.out.find("\"allocations\": 12"), std::string::npos) << stats.out;
}

TEST(RunCommand, ReachesTheChildrenOfAShell) {
  const std::string trace = own_folder() + "/run.trace";
  const Finished finished =
      run({"--sim", "--trace", trace, "--", "sh", "-c", program("memory") + " dlsym | wc -l"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_EQ(memory_events(trace).allocations, 12u);
}

TEST(ConfigCommand, ShowsWhereAValueCameFrom) {
  const Finished finished = run_program({cli(), "config"}, {{"VMM_LIMIT", "3G"}});
  EXPECT_EQ(finished.status, 0);
  const auto at = finished.out.find("VMM_LIMIT");
  ASSERT_NE(at, std::string::npos);
  const std::string line = finished.out.substr(at, finished.out.find('\n', at) - at);
  EXPECT_NE(line.find("3G"), std::string::npos) << line;
  EXPECT_NE(line.find("environment"), std::string::npos) << line;
}

TEST(ConfigCommand, NamesProblemsAndExitsWithTwo) {
  const Finished finished = run_program({cli(), "config"}, {{"VMM_MODE", "sideways"}});
  EXPECT_EQ(finished.status, 2);
  EXPECT_NE(finished.err.find("VMM_MODE"), std::string::npos);
}

TEST(ConfigCommand, SaysWhichCallsTheSimulatedDriverCannotFailOrDelay) {
  for (const auto& [name, value] :
       Variables{{"VMM_SIM_FAULT", "bad:x"}, {"VMM_SIM_DELAY", "cuMemMap=soon"}}) {
    const Finished finished = run_program({cli(), "config"}, {{name, value}});
    EXPECT_EQ(finished.status, 2) << name;
    EXPECT_NE(finished.err.find(name), std::string::npos) << finished.err;
  }
  const Variables good{
      {"VMM_SIM_FAULT",
       "cuMemMap:7=CUDA_ERROR_UNKNOWN, cuInit:1=CUDA_ERROR_UNKNOWN, cuMemAlloc:2=SIGKILL"},
      {"VMM_SIM_DELAY", "cuMemMap=25us"}};
  EXPECT_EQ(run_program({cli(), "config"}, good).status, 0);
  EXPECT_EQ(run({"--sim=fault=cuMemMap:7=CUDA_ERROR_UNKNOWN,cuInit:1=SIGKILL,delay=cuMemMap=25us,"
                 "cuMemUnmap=1ms,devices=2",
                 "--", "true"})
                .status,
            0);
  EXPECT_EQ(run({"--sim=card=../other", "--", "true"}).status, 2);
  EXPECT_EQ(run({"--sim=fault=bad:x", "--", "true"}).status, 2);
  EXPECT_EQ(run({"--sim=fault=cuNothing:1=CUDA_ERROR_UNKNOWN", "--", "true"}).status, 2);
}

TEST(StatsCommand, CountsWorkByKind) {
  const std::string here = own_folder() + "/run.trace";
  ASSERT_EQ(run({"--sim", "--mode", "monitor", "--trace", here, "--", program("events")}).status,
            0);
  const auto json = nlohmann::json::parse(run_program({cli(), "stats", "--json", here}).out);
  const std::map<std::string, int> expected = {
      {"launches", 2}, {"copies", 3},  {"sets", 2},        {"waits", 4},
      {"captures", 1}, {"maps", 1},    {"contexts", 1},    {"captured_operations", 1},
      {"pools", 1},    {"exports", 1}, {"allocations", 2}, {"refused_calls", 0},
  };
  for (const auto& [key, count] : expected) EXPECT_EQ(json.at(key), count) << key;
  EXPECT_EQ(json.at("copied_bytes"), 4096 + 4096 + 320);
  EXPECT_GT(json.at("wait_us"), 0);
  for (const auto& [key, value] : json.items()) EXPECT_FALSE(value.is_structured()) << key;

  const std::string text = run_program({cli(), "stats", here}).out;
  EXPECT_NE(text.find("launches"), std::string::npos) << text;
  EXPECT_EQ(text.find("prefetches"), std::string::npos) << "there were none";
}

// memory_program holds at most 40 MiB at a time; granules round it up.
TEST(StatsCommand, CountsTheChunksBehindServedMemory) {
  const std::string here = own_folder() + "/run.trace";
  ASSERT_EQ(
      run({"--sim", "--mode", "vmm", "--trace", here, "--", program("memory"), "dlsym"}).status, 0);
  const auto json = nlohmann::json::parse(run_program({cli(), "stats", "--json", here}).out);
  EXPECT_EQ(json.at("live_peak_bytes"), 40 << 20);
  EXPECT_GE(json.at("physical_peak_bytes"), 40 << 20);
  EXPECT_LE(json.at("physical_peak_bytes"), 80 << 20);
  EXPECT_GT(json.at("chunks_created"), 0);
}

TEST(StatsCommand, RefusesAFileThatIsNoTrace) {
  const Finished finished = run_program({cli(), "stats", "/etc/passwd"});
  EXPECT_EQ(finished.status, 1);
  EXPECT_NE(finished.err.find("/etc/passwd"), std::string::npos);
}

}  // namespace
}  // namespace cuvmm::test
