// Scripts for sbatch: times, names, and what cannot be written. The verbs' tests check whole scripts.
#include "runner/launch/slurm_script.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/error.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("times are read as sbatch reads them, or as in recipes") {
  const std::vector<std::pair<const char*, int64_t>> times = {
      {"90", 5400},      {"90:30", 5430},   {"1:2:3", 3723},       {"24:00:00", 86400},
      {"2-0", 172800},   {"1-2:30", 95400}, {"1-02:30:15", 95415}, {"0", 0},
      {"1d12h", 129600}, {"45m", 2700},     {"01:00:00:01", 86401}};
  for (const auto& [text, seconds] : times) {
    INFO(text);
    const auto time = parse_slurm_time(text);
    REQUIRE(time);
    CHECK(time->count() == seconds);
  }
  for (const char* text : {"", "soon", "-1", "1-", "1-2-3", "1:", "1:2:3:4:5", "1-1:2:3:4", "9999999999", "1.5"}) {
    INFO(text);
    CHECK_FALSE(parse_slurm_time(text));
  }
  for (const int64_t seconds : {1, 61, 3600, 86399, 86400, 1000000}) {
    const auto text = write_slurm_time(std::chrono::seconds(seconds));
    INFO(text);
    CHECK(parse_slurm_time(text) == std::chrono::seconds(seconds));
  }
  CHECK(write_slurm_time(std::chrono::seconds(95415)) == "1-02:30:15");
}

TEST_CASE("names of jobs have no characters that a shell or a path could misread") {
  CHECK(slurm_job_name("llm_fsdp-2.1") == "llm_fsdp-2.1");
  CHECK(slurm_job_name("a/b c\n$(d)\"é") == "a_b_c___d____");
  CHECK(slurm_job_name("") == "job");
}

TEST_CASE("an option that the user adds must not contradict those of the job") {
  SlurmJob job{.name = "a",
               .tag = "x7k2",
               .options = {{"nodes", "2", "devices.num_nodes"}},
               .directory = "/d",
               .home = "/h",
               .program = "runner",
               .file = "r.toml"};
  job.further = {"--constraint=\"a b\"", "-x host3"};
  CHECK_THAT(slurm_script(job), ContainsSubstring("#SBATCH --constraint=\"a b\"\n#SBATCH -x host3\nset -u\n"));
  for (const char* text : {"--nodes=3", "--nodes 3", "-N3", "-N 3"}) {
    job.further = {text};
    CHECK_THROWS_WITH(slurm_script(job), ContainsSubstring("the job has --nodes=2 already, from devices.num_nodes"));
  }
  for (const char* text : {"--time=1:00", "-c 4", "--array=0-3"}) {
    job.further = {text};
    CHECK_THROWS_AS(slurm_script(job), Error);
  }
  job.further = {"--comment=a\nrm -rf x"};
  CHECK_THROWS_WITH(slurm_script(job), ContainsSubstring("it takes one option of sbatch"));
  job.further = {};
  job.options.push_back({"comment", "a\nrm -rf x", "--comment"});
  CHECK_THROWS_WITH(slurm_script(job),
                    "--comment: a value with a line break cannot stand in a line `#SBATCH --comment`");
}
