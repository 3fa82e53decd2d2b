// A tiny training with hooks. Its ranks are threads.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <atomic>

#include "runner/base/clock.hpp"
#include "runner/train/hooks/training_hooks.hpp"
#include "runner/train/trainer.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tiny_training.hpp"

namespace runner::testing {

using nlohmann::json;

struct Rows : Dataset {
  const TinyRun& run;
  int64_t rows;
  std::atomic<bool>* stop = nullptr;  ///< set to true when a row is read
  Rows(const TinyRun& run, int64_t rows) : run(run), rows(rows) {}
  int64_t size() const override { return rows; }
  std::vector<BatchField> fields() const override { return token_fields(run.seq_len); }
  int64_t weight(int64_t) const override { return run.seq_len; }
  void read(int64_t sample, HostBatch& batch, int64_t row) const override {
    tiny_row(run, sample, batch, row);
    if (stop) stop->store(true);
  }
};

struct HookedForm {
  int world_size;
  std::string strategy;
  json options = json::object();
};

/// A tiny run with one hook, "probe". A step has 12 rows, an epoch has two steps. With two ranks, a step has two
/// micro-batches per rank.
struct HookedRun {
  TemporaryFolder folder;
  TinyRun tiny;
  Recipe recipe;
  int64_t validation_rows = 0;
  bool stop_in_validation = false;  ///< requests a stop, as SIGTERM does, when a validation reads its first row
  std::string cache_dir = {};
  TrainerResult result;
  std::vector<json> events;           ///< events of rank 0 from the last go()
  std::vector<std::string> failures;  ///< per rank: the error of the last go(), or ""

  HookedRun(const HookedForm& form, const std::string& hook) {
    tiny.world_size = form.world_size;
    tiny.strategy = form.strategy;
    tiny.options = form.options;
    recipe.train.global_batch_size = tiny.global_batch;
    recipe.train.micro_batch_size = 3;
    tiny.accumulation = tiny.global_batch / 3 / form.world_size;
    recipe.train.max_steps = 4;
    recipe.data.prefetch = 0;
    recipe.optimizer.lr = tiny.optimizer.lr;
    if (!hook.empty()) set_hook(hook);
  }

  void set_hook(const std::string& text) {
    auto file = folder.path / "probe.lua";
    write_file_atomic(file, text);
    recipe.hooks.files = {file.string()};
  }

  void go(const fs::path& resume_from = {}) {
    at::set_num_threads(1);
    auto log = folder.path / "events";
    int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    failures.assign(static_cast<size_t>(tiny.world_size), "");
    const ModelSpec spec = make_spec(tiny_model(tiny), tiny.vocab, tiny.seq_len);
    run_ranks(tiny.world_size, [&](World& world) {
      Rows train(tiny, 24), validation(tiny, validation_rows);
      std::atomic<bool> stop{false};
      if (stop_in_validation) validation.stop = &stop;
      with_strategy(tiny, world, [&](Strategy& strategy) {
        EventSink sink(world.rank, world.rank == 0 ? fd : -1);
        auto hooks = make_training_hooks({recipe, world, strategy, spec, sink, folder.path});
        Trainer trainer({.recipe = recipe,
                         .world = world,
                         .engine = strategy,
                         .train = train,
                         .validation = validation_rows > 0 ? &validation : nullptr,
                         .hooks = *hooks,
                         .events = sink,
                         .run_dir = folder.path,
                         .model_sizes = {{"vocab_size", tiny.vocab}},
                         .stop = &stop});
        try {
          if (!resume_from.empty()) trainer.resume(Checkpoint(resume_from));
          auto mine = trainer.run();
          if (world.rank == 0) result = mine;
        } catch (const lua::HookError& error) {
          failures[static_cast<size_t>(world.rank)] = error.what();
        }
      });
    });
    ::close(fd);
    events = EventReader(0).feed(read_file(log));
  }

  std::vector<json> events_of(const std::string& kind) const {
    std::vector<json> some;
    for (const auto& event : events)
      if (event.at("event") == kind) some.push_back(event);
    return some;
  }
  /// The values that hooks logged under `name`, in order.
  std::vector<double> logged(const std::string& name) const {
    std::vector<double> values;
    for (const auto& event : events_of("metrics"))
      if (event.at("values").contains(name)) values.push_back(event.at("values").at(name));
    return values;
  }
  std::vector<double> of_steps(const std::string& field) const {
    std::vector<double> values;
    for (const auto& event : events_of("step")) values.push_back(event.at(field));
    return values;
  }
  fs::path checkpoint(int64_t step) const { return folder.path / "checkpoints" / checkpoint_name(step); }
  json state(int64_t step) const { return Checkpoint(checkpoint(step)).state(); }
  /// All elements of a tensor of a checkpoint, gathered from its shards.
  torch::Tensor tensor(int64_t step, const std::string& name) const {
    Checkpoint from(checkpoint(step));
    return read_elements(from, name, {.slice = {}, .begin = 0, .end = slice_numel({}, from.shape(name))});
  }
  std::vector<std::string> parameter_names() const {
    std::vector<std::string> names;
    const ModelSpec spec = make_spec(tiny_model(tiny), tiny.vocab, tiny.seq_len);
    for (const auto* parameter : spec.parameters()) names.push_back(parameter->name);
    return names;
  }
  void use(const std::string& shipped, const json& options = json::object()) {
    recipe.hooks.files.push_back(shipped);
    if (!options.empty()) recipe.hooks.options[shipped] = options;
  }
};

inline const std::vector<HookedForm> forms = {
    {1, "single"}, {2, "ddp"}, {1, "fsdp"}, {2, "fsdp"}, {2, "zero", {{"stage", 2}}}, {2, "zero", {{"stage", 3}}}};

inline std::string name_of(const HookedForm& form) {
  return fmt::format("{} {} on {}", form.strategy, form.options.dump(), form.world_size);
}

}  // namespace runner::testing
