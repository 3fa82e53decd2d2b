// Steps that XLA compiles, in runs of the programs: losses and hooks beside ddp, kills, checkpoints of other strategies, stored programs,
// and refusals.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/resume_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// One layer of the tiny recipe, because a compiler needs seconds for each. Validates every fourth step.
CommandResult run(const Workplace& place, std::vector<std::string> arguments, const std::vector<std::string>& settings,
                  const std::map<std::string, std::string>& environment = {}) {
  if (arguments.front() == "run")
    arguments.insert(arguments.end(),
                     {"tiny.toml", "--set", "model.n_layers=1", "--set", "train.val_check_interval=4"});
  arguments.push_back("--json");
  for (const auto& text : settings) arguments.insert(arguments.end(), {"--set", text});
  return place.run(arguments, environment);
}

CommandResult finished(const Workplace& place, const std::vector<std::string>& arguments,
                       const std::vector<std::string>& settings) {
  auto result = run(place, arguments, settings);
  INFO(result.err);
  REQUIRE(result.code == 0);
  REQUIRE(result.json().at("status") == "finished");
  return result;
}

/// Metrics of the last run of each name: lists of [step, value].
json curves(const Workplace& place, const std::vector<std::string>& names) {
  json all;
  for (const auto& name : names) all[name] = place.points(name);
  return all;
}

void check_close(const json& found, const json& expected) {
  for (const auto& [name, points] : expected.items()) {
    REQUIRE(found.at(name).size() == points.size());
    for (size_t i = 0; i < points.size(); ++i) {
      INFO(name << " of step " << points[i][0]);
      CHECK(found.at(name)[i][0] == points[i][0]);
      CHECK_THAT(found.at(name)[i][1].get<double>(), Catch::Matchers::WithinRel(points[i][1].get<double>(), 1e-5));
    }
  }
}

const std::vector<std::string> trained{"loss", "val_loss", "lr", "grad_norm"};

std::vector<fs::path> files_below(const fs::path& folder, const std::string& extension) {
  std::vector<fs::path> found;
  if (!fs::exists(folder)) return found;
  for (const auto& file : fs::recursive_directory_iterator(folder))
    if (file.path().extension() == extension) found.push_back(file.path());
  return found;
}

}  // namespace

TEST_CASE("on two devices, losses and validation of XLA's steps are those of ddp", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "gradient_clip_val = 0.5\n[lr_scheduler]\nname = \"cosine\"\nwarmup_steps = 3\n");
  finished(place, {"run"}, {"strategy=ddp"});
  const auto expected = curves(place, trained);
  CHECK(expected.at("loss").size() == 12);
  CHECK(expected.at("val_loss").size() == 3);
  for (const char* strategy : {"xla", "xla_fsdp"}) {
    INFO(strategy);
    finished(place, {"run"}, {std::string("strategy=") + strategy});
    check_close(curves(place, trained), expected);
  }
  CHECK(files_below(place.home() / "cache", ".program").size() == 4);  // the folder without compilation_cache
}

TEST_CASE("hooks that read gradients, change the rate, skip an update and stop have the effect that they have with ddp",
          "[e2e]") {
  const char* const probe = R"(return {
  on_train_batch_start = function(ctx)
    if ctx.step == 2 then ctx:set_lr(5e-3) end
  end,
  on_before_optimizer_step = function(ctx)
    ctx:log("probe/embedding", ctx:gradient("embedding.tokens.weight"):norm())
    if ctx.step == 4 then ctx:gradient("head.norm.weight"):scale_(10) end
    if ctx.step == 5 and ctx.is_global_zero then ctx:skip_step() end
  end,
  on_train_batch_end = function(ctx, state)
    state.sum = (state.sum or 0) + ctx.loss
    ctx:log("probe/sum", state.sum, {sync = "max"})
    if ctx.step == 9 and ctx.world.rank == 1 then ctx:stop("it is enough") end
  end})";
  Workplace place;
  write_tiny_recipe(place, "[hooks]\nfiles = [\"probe.lua\"]\n");
  place.write("probe.lua", probe);
  auto names = trained;
  names.insert(names.end(), {"probe/embedding", "probe/sum"});
  finished(place, {"run"}, {"strategy=ddp"});
  const auto expected = curves(place, names);
  CHECK(expected.at("probe/embedding").size() == 9);
  CHECK(expected.at("lr")[2][1] == 5e-3);
  for (const char* strategy : {"xla", "xla_fsdp"}) {
    INFO(strategy);
    const auto result = finished(place, {"run"}, {std::string("strategy=") + strategy});
    CHECK(result.json().at("steps") == 9);
    CHECK_THAT(result.err, ContainsSubstring("stopped at step 9 by hook probe: rank 1: it is enough"));
    check_close(curves(place, names), expected);
  }
}

TEST_CASE("hooks that change parameters, keep averages and generate texts have the effect that they have with ddp",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, R"([hooks]
files = ["shrink.lua", "ema", "sample_generation"]
[hooks.ema]
decay = 0.9
[hooks.sample_generation]
prompt = "line 4"
max_new_tokens = 5
temperature = 0
)");
  place.write("shrink.lua", R"(return {
  on_train_batch_start = function(ctx)
    if ctx.step == 3 then ctx:parameter("blocks.0.mlp.up.weight"):scale_(0.5) end
    ctx:log("probe/weight", ctx:parameter("blocks.0.mlp.up.weight"):norm())
  end})");
  auto names = trained;
  names.push_back("probe/weight");
  const auto texts = [&] {
    json all;
    for (const auto& event : events_of(place, "sample")) all.push_back(event.at("text"));
    return all;
  };
  finished(place, {"run"}, {"strategy=ddp"});
  const auto expected = curves(place, names), expected_texts = texts();
  REQUIRE(expected_texts.size() == 3);
  const auto result = finished(place, {"run"}, {"strategy={name=\"xla_fsdp\",debug=true}"});
  CHECK_THAT(result.err, ContainsSubstring("the program of the step in"));  // no hook sees gradients
  check_close(curves(place, names), expected);
  CHECK(texts() == expected_texts);
}

TEST_CASE("a run of xla_fsdp that is killed and resumed has the losses of an undisturbed run, bit for bit", "[e2e]") {
  for (const char* precision : {"32-true", "16-mixed"}) {
    INFO(precision);
    const std::string recipe = "[strategy]\nname = \"xla_fsdp\"\n" + checkpoints;
    const std::vector<std::string> settings{std::string("precision=") + precision};
    Workplace whole, place;
    write_tiny_recipe(whole, recipe);
    write_tiny_recipe(place, recipe);
    const auto end = finished(whole, {"run"}, settings);
    // Each rank takes snapshots. A resumed run counts from 0.
    for (const char* fault : {"step:11", "snapshot:5", "publish:1"}) {
      const bool first = !fs::exists(place.home() / "runs");
      const auto killed = run(place, {first ? "run" : "resume"}, settings, {{"RUNNER_FAULT", fault}});
      INFO(fault << "\n" << killed.err);
      REQUIRE(killed.code == 128 + SIGKILL);
    }
    const auto result = finished(place, {"resume"}, {});
    const auto resumed = events_of(place, "resumed");
    REQUIRE_FALSE(resumed.empty());
    CHECK(resumed.back().at("step") > 2);
    CHECK(resumed.back().at("step") < 12);
    CHECK(curves(place, trained) == curves(whole, trained));
    CHECK(final_state(result.json().at("run_dir")) == final_state(end.json().at("run_dir")));
  }
}

TEST_CASE("a run continues with fsdp, xla_fsdp, xla and ddp in turn", "[e2e]") {
  Workplace whole, place;
  write_tiny_recipe(whole);
  write_tiny_recipe(place);
  finished(whole, {"run"}, {"strategy=fsdp"});
  finished(place, {"run"}, {"strategy=fsdp", "train.max_steps=3"});
  finished(place, {"resume"}, {"strategy=xla_fsdp", "devices=3", "train.max_steps=6"});
  finished(place, {"resume"}, {"strategy=xla", "devices=2", "train.max_steps=9"});
  finished(place, {"resume"}, {"strategy=ddp", "train.max_steps=12"});
  check_close(curves(place, {"loss", "grad_norm"}), curves(whole, {"loss", "grad_norm"}));
  const auto shown = place.run({"show", "last", "--json"}).json();
  std::vector<std::string> strategies;
  for (const auto& attempt : shown.at("attempts")) strategies.push_back(attempt.at("strategy"));
  CHECK(strategies == std::vector<std::string>{"fsdp", "xla_fsdp", "xla", "ddp"});
}

TEST_CASE("the second start loads the programs of the first, and is faster; damaged programs are compiled again",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto store = place.path() / "programs";
  const auto start = [&] {
    const auto result = finished(
        place, {"run"}, {"strategy={name=\"xla_fsdp\",debug=true,compilation_cache=\"" + store.string() + "\"}"});
    return std::pair(result, curves(place, {"loss", "val_loss"}));
  };
  const auto [first, expected] = start();
  CHECK_THAT(first.err, ContainsSubstring("note: XLA compiled the program of the step in") &&
                            ContainsSubstring("note: XLA compiled the program of the validation in") &&
                            !ContainsSubstring("XLA loaded"));
  CHECK(files_below(store, ".program").size() == 2);
  CHECK(files_below(place.home(), ".program").empty());

  const auto [second, again] = start();
  CHECK_THAT(second.err, ContainsSubstring("note: XLA loaded the program of the step in") &&
                             ContainsSubstring("note: XLA loaded the program of the validation in") &&
                             !ContainsSubstring("XLA compiled"));
  CHECK(second.json().at("time_to_first_step_s") < first.json().at("time_to_first_step_s"));
  CHECK(again == expected);

  // The end of one is cut off, and the last byte of the other one is wrong.
  const auto programs = files_below(store, ".program");
  fs::resize_file(programs.at(0), fs::file_size(programs.at(0)) / 2);
  auto bytes = slurp(programs.at(1));
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  place.write("programs/" + programs.at(1).filename().string(), bytes);
  const auto [third, repaired] = start();
  for (const auto& program : programs)
    CHECK_THAT(third.err,
               ContainsSubstring("note: " + program.string() + ": the file is damaged; the program is compiled again"));
  CHECK_THAT(third.err, !ContainsSubstring("XLA loaded"));
  CHECK(repaired == expected);
  const auto [fourth, loaded] = start();
  CHECK_THAT(fourth.err, !ContainsSubstring("XLA compiled") && !ContainsSubstring("damaged"));
  CHECK(loaded == expected);
}

TEST_CASE("programs are not kept with compilation_cache = \"none\", nor in a folder that cannot be made", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("file", "");
  const auto start = [&](const std::string& folder) {
    return finished(
        place, {"run"},
        {"strategy={name=\"single_xla\",compilation_cache=\"" + folder + "\"}", "devices=1", "train.max_steps=1"});
  };
  CHECK_THAT(start("none").err, !ContainsSubstring("not kept"));
  CHECK(files_below(place.path(), ".program").empty());
  const auto folder = (place.path() / "file" / "programs").string();
  CHECK_THAT(start(folder).err, ContainsSubstring("note: ") && ContainsSubstring(folder) &&
                                    ContainsSubstring("; the compiled program is not kept"));
}

namespace {

/// `check` and `run` refuse the first setting with the others.
void check_refused(const Workplace& place, const std::vector<std::string>& settings, const std::string& message,
                   const std::string& recipe = "tiny.toml") {
  for (const char* verb : {"check", "run"}) {
    std::vector<std::string> arguments{verb, recipe};
    for (const auto& text : settings) arguments.insert(arguments.end(), {"--set", text});
    const auto result = place.run(arguments);
    CHECK(result.code == 2);
    CHECK(result.err == "--set " + settings.front() + ": error: " + message + "\n");
  }
  CHECK_FALSE(fs::exists(place.home() / "runs"));
}

}  // namespace

TEST_CASE("what XLA's steps cannot do is refused before anything starts", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const std::string xla = "strategy=xla";
  check_refused(place, {xla, "optimizer.name=muon"},
                "XLA's strategies have no update for optimizer.name = \"muon\"; use adamw, adam, sgd or lion");
  check_refused(place, {"strategy=xla_fsdp", "devices.mesh={tensor=2}"},
                "a compiled step cannot use the axis `tensor`; use `model_parallel`, fsdp or ddp");
  check_refused(place, {xla, "devices.num_nodes=2", "devices.simulate=true"},
                "XLA's devices are driven by one process, on one node; use fsdp or ddp on several nodes");
  check_refused(place, {"strategy=single_xla", "devices=2"},
                "single_xla uses one device, but the recipe uses 2; use `xla` for a replica on each, or `xla_fsdp`");
  check_refused(place, {xla, "hooks.files=[\"label_smoothing\"]"},
                "a loss that a hook computes is not compiled; use ddp or fsdp");
  check_refused(place, {xla}, "running statistics of batch norm are not compiled, and resnet has them; use ddp or fsdp",
                RUNNER_SOURCE_DIR "/recipes/vision.toml");
}

TEST_CASE("XLA's steps refuse packed rows, and take records that are joined", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  std::string rows;
  for (int i = 0; i < 200; ++i) rows += R"({"text": "line )" + std::to_string(i) + "\"}\n";
  place.write("rows.jsonl", rows);
  const std::vector<std::string> records{"strategy=xla", "data.format=jsonl", "data.train=[\"rows.jsonl\"]"};
  auto packed = records;
  packed.push_back("data.packing=best_fit");
  check_refused(
      place, packed,
      "where a text begins and ends changes from batch to batch, so it is not compiled: use ddp or fsdp for texts "
      "with labels and encoders of texts; data.packing = \"none\" or \"wrapped\" avoids packed rows");
  for (const char* packing : {"none", "wrapped"}) {
    std::vector<std::string> arguments{"check", "tiny.toml", "--set", std::string("data.packing=") + packing};
    for (const auto& text : records) arguments.insert(arguments.end(), {"--set", text});
    const auto result = place.run(arguments);
    INFO(result.err);
    CHECK(result.code == 0);
  }
}

TEST_CASE("a plug-in that cannot be loaded ends the run with its path and the reason", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("plain.txt", std::string(1000, '-'));
  const auto plain = (place.path() / "plain.txt").string();
  for (const auto& [plugin, message] : std::map<std::string, std::string>{
           {plain, "cannot load the PJRT plug-in " + plain + ": " + plain + ": invalid ELF header"},
           {"libm.so.6", "libm.so.6 is no PJRT plug-in: it has no function GetPjrtApi"}}) {
    const auto result = run(place, {"run"}, {"strategy={name=\"xla\",plugin=\"" + plugin + "\"}"});
    CHECK(result.code == 4);
    CHECK_THAT(result.err, ContainsSubstring("error: rank 0: " + message + "\n"));
  }
}

TEST_CASE("a plug-in that does not exist is refused before anything starts", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  check_refused(place, {"strategy={name=\"xla\",plugin=\"/nowhere/libtpu.so\"}"},
                "strategy.plugin is /nowhere/libtpu.so, which does not exist");
}

TEST_CASE("recommend predicts the memory of a compiled step from the compiler's account, and the run needs it",
          "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  for (const std::string strategy : {"single_xla", "xla_fsdp"}) {
    INFO(strategy);
    const std::vector<std::string> settings{
        "strategy=" + strategy,     strategy == "single_xla" ? "devices=1" : "devices=2",
        "model.n_layers=1",         "train.accumulate_grad_batches=2",
        "train.micro_batch_size=3", "train.val_check_interval=4"};
    const std::vector<std::string> unset{"--unset", "train.global_batch_size"};
    std::vector<std::string> arguments{"recommend", "tiny.toml", "--json"};
    for (const auto& text : settings) arguments.insert(arguments.end(), {"--set", text});
    arguments.insert(arguments.end(), unset.begin(), unset.end());
    const auto recommended = place.run(arguments);
    INFO(recommended.err);
    REQUIRE(recommended.code == 0);
    CHECK_THAT(recommended.err,
               ContainsSubstring("XLA compiles the step of " + strategy + ", to learn what memory it needs"));
    double predicted = 0;
    const json candidates = recommended.json().at("candidates");
    for (const auto& candidate : candidates)
      if (candidate.at("recipes_own").get<bool>())
        predicted = candidate.at("memory_bytes_per_rank").get<double>() -
                    candidate.at("memory_parts").at("context").get<double>();
    arguments.front() = "run";
    const auto result = place.run(arguments);
    INFO(result.err);
    REQUIRE(result.code == 0);
    const auto measured = result.json().at("peak_memory_bytes_per_rank").at(0).get<double>();
    CHECK(predicted / measured > 0.97);
    CHECK(predicted / measured < 1.03);
  }
}

TEST_CASE("a plug-in for other devices than accelerator tpu is refused", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto result = run(place, {"run"},
                          {std::string("strategy={name=\"xla\",plugin=\"") + RUNNER_XLA_PLUGIN + "\"}",
                           "devices.accelerator=tpu", "devices=2"});
  CHECK(result.code == 4);
  CHECK_THAT(result.err, ContainsSubstring("devices.accelerator = \"tpu\", but strategy.plugin = \"" RUNNER_XLA_PLUGIN
                                           "\" has devices of the platform cpu"));
}

TEST_CASE("accelerator tpu asks for a plug-in", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  check_refused(place, {"devices.accelerator=tpu", "strategy=xla"},
                "accelerator \"tpu\" needs a PJRT plug-in for its devices: set "
                "strategy.plugin = \"/path/to/libtpu.so\"; with devices.simulate = true CPU processes take the place "
                "of the devices");
}

namespace {

/// Whether the process ends within a minute. It stays a zombie until finish().
bool ends(pid_t pid) {
  return wait_until(
      [&] {
        siginfo_t info{};
        return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
      },
      60);
}

}  // namespace

TEST_CASE("25 runs of xla_fsdp on four devices in a row end, and have the same losses, bit for bit", "[.nightly]") {
  Workplace place;
  write_tiny_recipe(place);
  json expected;
  for (int round = 0; round < 25; ++round) {
    INFO("round " << round);
    const pid_t pid =
        place.start({"run", "tiny.toml", "--json", "--set", "strategy=xla_fsdp", "devices=4", "model.n_layers=1"});
    const bool ended = ends(pid);
    if (!ended)
      for (const pid_t child : children_of(pid)) ::kill(child, SIGKILL);
    const auto result = place.finish(pid);
    INFO(result.err);
    REQUIRE(ended);
    REQUIRE(result.code == 0);
    const auto found = curves(place, {"loss", "val_loss", "grad_norm"});
    if (round == 0) expected = found;
    REQUIRE(found.at("loss").size() == 12);
    REQUIRE(found == expected);
  }
}
