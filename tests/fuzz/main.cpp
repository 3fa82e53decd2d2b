// fuzz TARGET SECONDS [SEED]   gives a reader changed files of its corpus. What ends it is written to the folder fuzz-found.
// fuzz --corpus [TARGET...]    reads each file of the corpus once; of named targets, prints what the readers say
// fuzz --targets               the names
//
// A child reads, so that a crash loses nothing. It may take 10 s and 2 GiB for a file.
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <iostream>

#include "fuzz.hpp"
#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/xxh3.hpp"

extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "hard_rss_limit_mb=2048:max_allocation_size_mb=2048:detect_leaks=1";
}

namespace runner::fuzz {
namespace {

constexpr int seconds_max = 10, files_of_a_child = 2000;

void read_one(const Target& target, const fs::path& folder, const std::string& bytes, bool says = false) {
  const fs::path file = folder / "file";
  std::ofstream(file, std::ios::binary) << bytes;
  alarm(seconds_max);
  try {
    target.read(file, bytes);
  } catch (const Error& error) {
    if (says) fmt::print("{}: {}\n", target.name, error.what());
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: this left the reader: {}\n", target.name, error.what());
    abort();
  }
  alarm(0);
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path() != file) fs::remove_all(entry);
}

/// Whether `work` ended well, in a process of its own.
template <typename Work>
bool in_child(const Work& work) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    work();
    std::exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) fmt::print(stderr, "it took more than {} s\n", seconds_max);
  return status == 0;
}

std::vector<std::string> corpus_of(const Target& target) {
  std::vector<std::string> corpus;
  for (const auto& entry : fs::directory_iterator(fs::path(FUZZ_CORPUS) / target.name))
    corpus.push_back(read_file(entry.path()));
  return corpus;
}

int fuzz(const Target& target, int seconds, uint64_t seed) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(seconds);
  const auto corpus = corpus_of(target);
  const ScratchFolder scratch("/dev/shm");
  int found = 0;
  int64_t files = 0;
  for (; Clock::now() < end && found < 20; ++seed, files += files_of_a_child) {
    const bool good = in_child([&] {
      std::mt19937_64 random(seed);
      for (int i = 0; i < files_of_a_child && Clock::now() < end; ++i)
        read_one(target, scratch.path(), mutated(corpus, random));
    });
    if (good) continue;
    const auto bytes = read_file(scratch.path() / "file");
    const auto kept = fs::path("fuzz-found") / fmt::format("{}-{}", target.name, xxh3_hex(bytes));
    fs::create_directories(kept.parent_path());
    std::ofstream(kept, std::ios::binary) << bytes;
    fmt::print("{}: {} (seed {})\n", target.name, kept.string(), seed);
    ++found;
  }
  fmt::print("{}: about {} files, {} found\n", target.name, files, found);
  return found == 0 ? 0 : 1;
}

int replay(const std::vector<std::string>& names) {
  int failed = 0;
  for (const auto& target : targets()) {
    if (!names.empty() && std::ranges::find(names, target.name) == names.end()) continue;
    const ScratchFolder scratch("/dev/shm");
    for (const auto& entry : fs::directory_iterator(fs::path(FUZZ_CORPUS) / target.name)) {
      if (in_child([&] { read_one(target, scratch.path(), read_file(entry.path()), !names.empty()); })) continue;
      fmt::print("{}: the reader failed\n", entry.path().string());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}

int main(const std::vector<std::string>& words) {
  rlimit core{0, 0};
  setrlimit(RLIMIT_CORE, &core);
  if (words.size() == 1 && words[0] == "--targets") {
    for (const auto& target : targets()) fmt::print("{}\n", target.name);
    return 0;
  }
  if (!words.empty() && words[0] == "--corpus") return replay({words.begin() + 1, words.end()});
  for (const auto& target : targets())
    if (words.size() >= 2 && target.name == words[0])
      return fuzz(target, std::stoi(words[1]), words.size() > 2 ? std::stoull(words[2]) : std::random_device()());
  fmt::print(stderr, "fuzz TARGET SECONDS [SEED], fuzz --corpus [TARGET...] or fuzz --targets\n");
  return 2;
}

}  // namespace
}  // namespace runner::fuzz

int main(int count, char** words) { return runner::fuzz::main({words + 1, words + count}); }
