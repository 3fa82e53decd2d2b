// Checkpoints across strategies and numbers of ranks: any combination reads them bit for bit.
#include "runner/train/checkpointer.hpp"

#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "runner/base/error.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("runner-checkpointer-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

struct CheckpointForm {
  const char* strategy;
  nlohmann::json options;
  int world_size;
};

nlohmann::json on_nvme(int stage) {
  nlohmann::json options{{"stage", stage},
                         {"stage3_param_persistence_threshold", 500},
                         {"sub_group_size", 2048},
                         {"nvme_path", fs::temp_directory_path()},
                         {"offload_optimizer", true},
                         {"offload_optimizer_device", "nvme"}};
  if (stage == 3) options.update({{"offload_parameters", true}, {"offload_params_device", "nvme"}, {"max_in_cpu", 0}});
  return options;
}

const std::vector<CheckpointForm>& checkpoint_forms() {
  static const std::vector<CheckpointForm> list = {
      {"single", {}, 1},
      {"ddp", {}, 2},
      {"ddp", {}, 3},
      {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}, 1},
      {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}, 3},
      {"fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}}, 2},
      {"fsdp", {{"sharding_strategy", "NO_SHARD"}}, 2},
      {"fsdp", {{"sharding_strategy", "FULL_SHARD"}, {"state_dict_type", "full"}}, 3},
      {"fsdp", {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", 2}, {"auto_wrap_policy", "none"}}, 4},
      {"zero", {{"stage", 1}}, 2},
      {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 500}}, 3},
      {"zero", on_nvme(2), 3},
      {"zero", on_nvme(3), 2}};
  return list;
}

TinyRun tiny(const CheckpointForm& form) {
  TinyRun run;
  run.strategy = form.strategy;
  run.options = form.options.is_null() ? nlohmann::json::object() : form.options;
  run.world_size = form.world_size;
  return run;
}

Checkpointer::Options options(const fs::path& folder, bool async) {
  Checkpointer::Options options;
  options.folder = folder;
  options.async = async;
  options.keep_last = 0;
  return options;
}

/// Trains 3 steps, saves, and returns the complete state.
std::map<std::string, std::vector<float>> train_and_save(const TinyRun& run, const fs::path& folder, bool async) {
  std::map<std::string, std::vector<float>> whole;
  std::mutex mutex;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      for (int64_t step = 0; step < 3; ++step) strategy.step(tiny_input(run, world.rank, step));
      Checkpointer checkpointer(world, options(folder, async), {});
      checkpointer.save(strategy, 3, {{"strategy", strategy.scalars()}});
      collect_state(strategy, whole, mutex);
      if (async) strategy.step(tiny_input(run, world.rank, 3));  // must not change the snapshot
      checkpointer.wait();
    });
  });
  return whole;
}

std::map<std::string, std::vector<float>> load(const TinyRun& run, const fs::path& checkpoint) {
  std::map<std::string, std::vector<float>> whole;
  std::mutex mutex;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      load_state(strategy, Checkpoint(checkpoint));
      collect_state(strategy, whole, mutex);
    });
  });
  return whole;
}

}  // namespace

TEST_CASE("a checkpoint of any strategy on N ranks loads bit for bit under any other on M ranks") {
  at::set_num_threads(1);
  for (const auto& from : checkpoint_forms()) {
    Folder folder;
    auto saved = train_and_save(tiny(from), folder.path, from.world_size % 2 == 0);
    auto checkpoints = list_checkpoints(folder.path);
    REQUIRE(checkpoints.size() == 1);
    for (const auto& to : checkpoint_forms()) {
      INFO(from.strategy << " on " << from.world_size << " -> " << to.strategy << " on " << to.world_size);
      CHECK(load(tiny(to), checkpoints[0]) == saved);
    }
  }
}

TEST_CASE("state_dict_type = full writes everything into the file of rank 0") {
  at::set_num_threads(1);
  auto data_bytes = [](nlohmann::json type) {
    Folder folder;
    train_and_save(tiny({"fsdp", {{"state_dict_type", type}}, 3}), folder.path, false);
    std::vector<uint64_t> sizes;
    for (int rank = 0; rank < 3; ++rank) {
      auto file = list_checkpoints(folder.path).at(0) / fmt::format("rank-{:05d}.safetensors", rank);
      sizes.push_back(fs::exists(file) ? fs::file_size(file) : 0);
    }
    return sizes;
  };
  auto sharded = data_bytes("sharded"), full = data_bytes("full");
  CHECK(sharded[1] > 10'000);
  CHECK(full[0] > sharded[0] + sharded[1]);
  CHECK(full[1] < 200);
  CHECK(full[2] < 200);
}

TEST_CASE("a sharded rank reads only its bytes") {
  at::set_num_threads(1);
  Folder folder;
  TinyRun run = tiny({"ddp", {}, 2});
  train_and_save(run, folder.path, false);
  auto path = list_checkpoints(folder.path)[0];
  std::vector<uint64_t> read(4);
  TinyRun sharded = tiny({"fsdp", {}, 4});
  uint64_t whole = 0;
  run_ranks(4, [&](World& world) {
    with_strategy(sharded, world, [&](Strategy& strategy) {
      Checkpoint checkpoint(path, /*verify=*/false);
      load_state(strategy, checkpoint);
      read[static_cast<size_t>(world.rank)] = checkpoint.bytes_read();
      if (world.rank == 0)
        for (const auto& name : checkpoint.tensors()) {
          uint64_t count = 1;
          for (int64_t size : checkpoint.shape(name)) count *= static_cast<uint64_t>(size);
          whole += count * 4;
        }
    });
  });
  CHECK(read[0] + read[1] + read[2] + read[3] == whole);
}

namespace {

/// A store that counts reads through this connection. clone() makes another connection, whose reads are not counted.
class CountedStore : public c10d::PrefixStore {
 public:
  CountedStore(const c10::intrusive_ptr<c10d::Store>& store, std::atomic<int>& reads)
      : PrefixStore("counted", store), reads_(reads) {}
  std::vector<uint8_t> get(const std::string& key) override {
    ++reads_;
    return PrefixStore::get(key);
  }

 private:
  std::atomic<int>& reads_;
};

}  // namespace

TEST_CASE("a checkpoint waits on a connection of its own, because reads of a store block its other users") {
  at::set_num_threads(1);
  Folder folder;
  TinyRun run = tiny({"ddp", {}, 2});
  std::atomic<int> reads = 0;
  run_ranks(2, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      world.store = c10::make_intrusive<CountedStore>(world.store, reads);
      Checkpointer checkpointer(world, options(folder.path, true), {});
      checkpointer.save(strategy, 1, {});
      checkpointer.wait();
    });
  });
  CHECK(reads == 0);
  CHECK(fs::exists(folder.path / checkpoint_name(1)));
}

TEST_CASE("a rank that cannot write is named on all ranks, and no files remain", "[on_error]") {
  at::set_num_threads(1);
  Folder folder;
  auto temporary = folder.path / ".step-000003.1.tmp";
  fs::create_directories(temporary / "rank-00001.safetensors");
  TinyRun run = tiny({"ddp", {}, 2});
  std::string said[2];
  run_ranks(2, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      auto stopping = options(folder.path, true);
      stopping.stop_on_error = true;
      Checkpointer checkpointer(world, stopping, {});
      checkpointer.save(strategy, 3, {});
      try {
        checkpointer.wait();
      } catch (const Error& error) {
        said[world.rank] = error.what();
      }
    });
  });
  std::string cause =
      "cannot write " + (folder.path / "step-000003").string() + ": rank-00001.safetensors: File exists";
  CHECK(said[0] == cause);
  CHECK(said[1] == cause);
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE(
    "training continues without checkpoints that cannot be written, and notes the first, second, fourth and so on",
    "[on_error]") {
  at::set_num_threads(1);
  for (int world_size : {1, 2})
    for (bool async : {false, true}) {
      INFO(world_size << " ranks, " << (async ? "in the background" : "while training waits"));
      Folder folder;
      // The last rank fails to write steps 4 and 6, can write step 8, and fails to write the last one, 10.
      for (int64_t step : {4, 6, 10})
        fs::create_directories(folder.path / fmt::format(".step-{:06d}.1.tmp", step) /
                               fmt::format("rank-{:05d}.safetensors", world_size - 1));
      TinyRun run = tiny({world_size == 1 ? "single" : "ddp", {}, world_size});
      std::vector<std::string> notes, ends(static_cast<size_t>(world_size));
      run_ranks(world_size, [&](World& world) {
        with_strategy(run, world, [&](Strategy& strategy) {
          Checkpointer checkpointer(world, options(folder.path, async),
                                    {.note = [&](const std::string& text) { notes.push_back(text); }});
          for (int64_t step : {2, 4, 6, 8, 10}) checkpointer.save(strategy, step, {});
          checkpointer.wait();
          try {
            checkpointer.finish();
          } catch (const Error& error) {
            ends[static_cast<size_t>(world.rank)] = error.what();
          }
        });
      });
      auto failure = [&](int64_t step) {
        return "cannot write " + (folder.path / checkpoint_name(step)).string() + ": rank";
      };
      REQUIRE(notes.size() == 4);
      CHECK_THAT(notes[0],
                 Catch::Matchers::StartsWith(failure(4)) &&
                     Catch::Matchers::EndsWith("; training continues, and the next checkpoint is tried when it is "
                                               "due (checkpoint.on_error = \"stop\" ends the run instead)"));
      CHECK_THAT(notes[1], Catch::Matchers::StartsWith("2 checkpoints in a row could not be written: " + failure(6)));
      CHECK(notes[2] == "checkpoints can be written again");
      CHECK_THAT(notes[3], Catch::Matchers::StartsWith(failure(10)));
      for (const auto& end : ends)
        CHECK_THAT(end, Catch::Matchers::StartsWith(failure(10)) &&
                            Catch::Matchers::EndsWith("; it was the last checkpoint of this run"));
      std::vector<fs::path> left;
      for (const auto& entry : fs::directory_iterator(folder.path)) left.push_back(entry.path().filename());
      std::sort(left.begin(), left.end());
      CHECK(left == std::vector<fs::path>{"step-000002", "step-000008"});
    }
}

TEST_CASE("a checkpoint is published only after earlier events are durable") {
  at::set_num_threads(1);
  for (int world_size : {1, 2}) {
    Folder folder;
    auto file = folder.path / "artifact";
    std::ofstream(file) << "text";
    TinyRun run = tiny({world_size == 1 ? "single" : "ddp", {}, world_size});
    std::vector<std::string> order;
    run_ranks(world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        auto path = folder.path / checkpoint_name(3);
        Checkpointer checkpointer(
            world, options(folder.path, true),
            {.settle = [&] { order.push_back(fs::exists(path) ? "settled too late" : "settled"); },
             .published = [&](const auto&) { order.push_back(fs::exists(path) ? "published" : "not there"); }});
        Checkpointer::More more;
        if (world.rank == 0) more.files = {file};
        checkpointer.save(strategy, 3, {}, more);
        checkpointer.wait();
      });
    });
    CHECK(order == std::vector<std::string>{"settled", "published"});
  }
}

TEST_CASE("no rank goes on before its checkpoint is stored elsewhere, if training waits for that") {
  at::set_num_threads(1);
  for (int world_size : {1, 2}) {
    Folder folder;
    TinyRun run = tiny({world_size == 1 ? "single" : "ddp", {}, world_size});
    std::vector<std::string> order;
    std::atomic<bool> stored{false};
    run_ranks(world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        auto waiting = options(folder.path, false);
        waiting.wait_for_store = true;
        const auto settle = [&] {
          order.push_back("settled");
          if (order.size() == 1) return;
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          stored = true;
        };
        Checkpointer checkpointer(world, waiting,
                                  {.settle = settle, .published = [&](const auto&) { order.push_back("published"); }});
        checkpointer.save(strategy, 3, {});
        RANK_CHECK(stored);
      });
    });
    CHECK(order == std::vector<std::string>{"settled", "published", "settled"});
  }
}

TEST_CASE("a checkpoint of another model is rejected with names and shapes") {
  at::set_num_threads(1);
  Folder folder;
  train_and_save(tiny({"single", {}, 1}), folder.path, false);
  TinyRun other = tiny({"single", {}, 1});
  other.family = "llama";
  std::string refusal;
  run_ranks(1, [&](World& world) {
    with_strategy(other, world, [&](Strategy& strategy) {
      try {
        load_state(strategy, Checkpoint(list_checkpoints(folder.path)[0]));
      } catch (const Error& error) {
        refusal = error.what();
      }
    });
  });
  CHECK_THAT(refusal, Catch::Matchers::ContainsSubstring("does not fit the recipe's model and optimizer") &&
                          Catch::Matchers::ContainsSubstring("is missing"));
}

TEST_CASE("a checkpoint that could never be written ends the run, also with on_error = continue", "[on_error]") {
  at::set_num_threads(1);
  for (bool async : {false, true}) {
    Folder folder;
    TinyRun run = tiny({"single", {}, 1});
    std::string said;
    run_ranks(1, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        Checkpointer checkpointer(world, options(folder.path, async), {});
        try {
          checkpointer.save(strategy, 3, {{"text", "caf\xe9"}});  // no JSON text can contain it
          checkpointer.wait();
        } catch (const Error& error) {
          said = error.what();
        }
      });
    });
    CHECK_THAT(said, Catch::Matchers::StartsWith("the checkpoint of step 3 cannot be written: "));
    CHECK(fs::is_empty(folder.path));
  }
}
