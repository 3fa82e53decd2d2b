// Which earlier runs the times of compiled steps are learned from.
#include "runner/commands/step_clock.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/models/models.hpp"

using namespace runner;

namespace {

/// The devices of a run whose step XLA compiles with this plug-in.
Circumstances with_plugin(const nlohmann::json& plugin) {
  Recipe::Model recipe;
  recipe.name = "gpt";
  recipe.n_layers = 1;
  recipe.dim = 32;
  recipe.n_heads = 2;
  recipe.max_seq_len = 32;
  const ModelSpec model = make_spec(recipe, 256, 32);
  Job job;
  job.model = &model;
  job.accelerator.platform = "pjrt";
  job.options = {{"plugin", plugin}};
  const Knowledge nothing{.machine = "here", .build = "1", .calibrations = {}, .disturbed = {}, .runs = {}};
  const ClockSource source({}, nothing, /*shared_memory=*/true);
  return source.circumstances(job, 1);
}

}  // namespace

TEST_CASE("times with one plug-in say nothing about another one, or about another machine") {
  const auto cpu = with_plugin(nullptr), tpu = with_plugin("/opt/libtpu.so");
  CHECK(cpu.device == "cpu with XLA");
  CHECK(with_plugin("/opt/libpjrt_cpu.so").device == "cpu with XLA");
  CHECK(tpu.device == "XLA, libtpu.so");
  CHECK(doubt(tpu, tpu) == 0.0);
  CHECK_FALSE(doubt(cpu, tpu));
  CHECK_FALSE(doubt(with_plugin("libcuda.so"), tpu));
  auto elsewhere = tpu;
  elsewhere.machine = "there";
  CHECK_FALSE(doubt(elsewhere, tpu));
}
