// Offload in complete runs: a truncated swap file, a folder that cannot be used, and a model whose optimizer state does
// not fit in memory.
#include <sys/resource.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/support/command.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// The unnamed swap files of the workers in the workplace, as /proc/PID/fd/N.
std::vector<fs::path> swap_files(pid_t supervisor, const Workplace& place) {
  std::vector<fs::path> files;
  auto here = fs::canonical(place.path()).string();
  for (pid_t worker : children_of(supervisor)) {
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(worker) + "/fd", gone)) {
      auto target = fs::read_symlink(entry.path(), gone).string();
      if (target.starts_with(here) && target.ends_with("(deleted)")) files.push_back(entry.path());
    }
  }
  return files;
}

const std::string on_nvme =
    "[strategy]\nname = \"deepspeed_stage_3_offload_nvme\"\nnvme_path = \"swap\"\nmax_in_cpu = 0\n"
    "stage3_param_persistence_threshold = 200\nsub_group_size = 4096\n";

}  // namespace

TEST_CASE("a truncated swap file stops the run, and the message names it", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, on_nvme);
  fs::create_directory(place.path() / "swap");
  pid_t pid = place.start({"run", "tiny.toml", "--set", "train.max_steps=100000"});
  std::vector<fs::path> files;
  REQUIRE(wait_until([&] { return (files = swap_files(pid, place)).size() == 2; }, 30));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  REQUIRE(::truncate(files[0].c_str(), 4096) == 0);
  auto result = place.finish(pid);
  INFO(result.err);
  CHECK(result.code == 1);
  // A write in flight during the truncation extends the file again, so the error may come from a read or a write.
  CHECK_THAT(result.err, ContainsSubstring("the swap file of rank ") && ContainsSubstring("/swap: the file has "));
}

TEST_CASE("a model whose optimizer state is twice the memory trains from NVMe with the same losses", "[e2e]") {
  // 101 M parameters in bf16-mixed. Masters and Adam's moments need 1157 MiB.
  constexpr uint64_t half = 578 << 20;
  Workplace place;
  write_tiny_recipe(place);
  auto with = [](const std::string& strategy) {
    std::vector<std::string> words{"run", "tiny.toml", "--json"};
    for (std::string value :
         {"model.dim=1024", "model.n_layers=8", "model.n_heads=8", "model.max_seq_len=4", "model.dropout=0.0",
          "devices=1", "precision=bf16-mixed", "train.max_steps=3", "train.global_batch_size=1",
          "train.limit_val_batches=1", "checkpoint.save_at_end=false"}) {
      words.push_back("--set");
      words.push_back(value);
    }
    words.push_back("--set");
    words.push_back("strategy={" + strategy + "}");
    return words;
  };
  const std::string in_memory = "name=\"deepspeed_stage_3\"";
  auto free = place.run(with(in_memory));
  INFO(free.err);
  REQUIRE(free.code == 0);
  auto limited = place.finish(place.start(with(in_memory), "limited", {}, half), "limited");
  CHECK(limited.code == 1);
  CHECK_THAT(limited.err, ContainsSubstring("out of memory") && ContainsSubstring("deepspeed_stage_3_offload_nvme"));
  auto streamed = place.finish(
      place.start(with("name=\"deepspeed_stage_3_offload_nvme\",nvme_path=\".\",max_in_cpu=0,"
                       "stage3_param_persistence_threshold=0,stage3_max_reuse_distance=0,sub_group_size=262144,"
                       "params_buffer_count=2,queue_depth=4"),
                  "streamed", {}, half),
      "streamed");
  INFO(streamed.err);
  REQUIRE(streamed.code == 0);
  CHECK(streamed.json().at("final_loss") == free.json().at("final_loss"));
}

TEST_CASE("an NVMe folder that cannot be used is reported before the first step", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, on_nvme);
  auto missing = place.run({"run", "tiny.toml"});
  CHECK(missing.code == 4);
  CHECK_THAT(missing.err, ContainsSubstring("cannot open the swap file of rank ") &&
                              ContainsSubstring("/swap: there is no such folder"));
  auto none = place.run({"run", "tiny.toml", "--unset", "strategy.nvme_path"});
  CHECK(none.code == 2);
  CHECK_THAT(none.err, ContainsSubstring("offload to NVMe needs nvme_path = \"FOLDER\", a folder on the NVMe disk"));
}
