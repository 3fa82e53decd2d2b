// Accelerator plug-ins, end to end: a library that is built outside of the tree gives LibTorch a device type of its own. Every kind of
// strategy trains on its devices with the losses of the CPU, runs resume, the planner knows the devices, and mistakes are reported.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>

#include "tests/plugin/torch_parts_support.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

std::string device_source() { return slurp(RUNNER_SOURCE_DIR "/tests/plugin/parts/host_device.cpp"); }

const fs::path& device_library() {
  static const TemporaryFolder folder;
  static const fs::path library = [] {
    build_torch_parts(folder.path, device_source());
    return folder.path / "libparts.so";
  }();
  return library;
}

/// The tiny recipe without devices of its own.
void write_device_recipe(const Workplace& place, const std::string& extra = "") {
  write_tiny_recipe(place, "[plugins]\naccelerator = \"libparts.so\"\n" + extra);
  std::string text = slurp(place.path() / "tiny.toml");
  const std::string cpu = "accelerator = \"cpu\"\ncpu_processes = 2\n";
  place.write("tiny.toml", text.replace(text.find(cpu), cpu.size(), ""));
  fs::copy_file(device_library(), place.path() / "libparts.so");
}

/// The devices of all ranks of all runs.
std::multiset<std::string> used_devices(const Workplace& place) {
  std::multiset<std::string> used;
  const json list = place.run({"ls", "--json"}).json();
  for (const auto& run : list.at("runs")) {
    const json shown = place.run({"show", run.at("id").get<std::string>(), "--json"}).json();
    for (const auto& event : shown.at("events"))
      if (event.at("event") == "ready") used.insert(event.at("device"));
  }
  return used;
}

}  // namespace

TEST_CASE("devices of a plug-in train as the CPU does, under every kind of strategy") {
  Workplace cpu, place;
  write_tiny_recipe(cpu);
  trained_with(cpu, {});
  const auto expected = losses(cpu);
  REQUIRE(expected.size() >= 2);
  write_device_recipe(place);
  for (const std::string strategy :
       {"ddp", "fsdp", "deepspeed_stage_2", "deepspeed_stage_3_offload", "dp", "fsdp_cpu_offload", "bagua"}) {
    CAPTURE(strategy);
    trained_with(place, {"strategy=" + strategy});
    const auto found = losses(place);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK_THAT(found[i], WithinRel(expected[i], 1e-5));
  }
  const auto shown = place.run({"show", "--json"}).json();
  CHECK(shown.at("measured").at("memory_bytes_per_rank").get<int64_t>() > 0);
}

TEST_CASE("a mesh of a plug-in's devices trains as the CPU does") {
  Workplace cpu, place;
  write_tiny_recipe(cpu);
  trained_with(cpu, {});
  const auto expected = losses(cpu);
  write_device_recipe(place);
  for (const std::string mesh : {"{ pipeline = 2 }", "{ tensor = 2 }", "{ context = 2 }"}) {
    CAPTURE(mesh);
    trained_with(place, {"strategy=ddp", "devices.mesh=" + mesh});
    const auto found = losses(place);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) CHECK_THAT(found[i], WithinRel(expected[i], 1e-5));
  }
}

TEST_CASE("a resumed run on a plug-in's devices ends as an undisturbed one, and its models do not need the library") {
  Workplace calm, stopped;
  write_device_recipe(calm, fsdp + checkpoints);
  write_device_recipe(stopped, fsdp + checkpoints);
  const auto expected = trained_with(calm, {});
  trained_with(stopped, {"train.max_steps=6"});
  check_end(stopped, stopped.run({"resume", "--json", "--set", "train.max_steps=12"}),
            {expected.at("final_loss"), final_state(expected.at("run_dir"))});
  fs::remove(calm.path() / "libparts.so");
  const auto generated = calm.run({"generate", "last", "line", "--max-new-tokens", "4"});
  INFO(generated.err);
  CHECK(generated.code == 0);
}

TEST_CASE("a plug-in's devices are planned for, chosen by index, and divided among the trials of a sweep") {
  Workplace place;
  write_device_recipe(place);
  const std::string bf16 = "plugins.options={ bf16 = true, device_memory = 200000000 }";
  const auto run = trained_with(place, {bf16, "strategy=ddp", "devices.devices=[1]"});
  const auto resolved = slurp(fs::path(run.at("run_dir").get<std::string>()) / "resolved.toml");
  CHECK_THAT(resolved, ContainsSubstring("mode = \"bf16-mixed\"") && ContainsSubstring("devices = [1]"));
  CHECK(events_of(place, "ready").at(0).at("device") == "hostdev:1");
  const auto host = place.run({"show", "last", "--json"}).json().at("host");
  CHECK(host.at("accelerator") == "hostdev");
  CHECK(host.at("devices").at(0).at("memory_bytes") == 200000000);
  const auto checked = run_with(place, "check", {bf16});
  CHECK_THAT(checked.out + checked.err, ContainsSubstring("on 2 hostdev devices"));
  const auto recommended = run_with(place, "recommend", {bf16, "strategy.name=auto"});
  CHECK_THAT(recommended.out, ContainsSubstring("2 x hostdev device"));
  CHECK_THAT(run_with(place, "recommend", {bf16, "strategy.name=auto", "model.dim=2048"}).out,
             ContainsSubstring("190.7 MiB of this device"));

  place.write("sweep.toml",
              "[sweep]\nrecipe = \"tiny.toml\"\nmethod = \"grid\"\nparallel = 2\n"
              "[sweep.space]\n\"optimizer.lr\" = [0.001, 0.002]\n");
  const auto swept = place.run({"sweep", "run", "sweep.toml", "--json"});
  INFO(swept.err);
  REQUIRE(swept.code == 0);
  CHECK(used_devices(place) ==
        std::multiset<std::string>{"hostdev:0", "hostdev:1", "hostdev:1"});  // the run before was on device 1
  CHECK_THAT(swept.err, ContainsSubstring("begins on hostdev:0") && ContainsSubstring("begins on hostdev:1"));
  const auto best = place.run({"sweep", "best"});
  CHECK(best.out.find("devices.devices") == std::string::npos);
}

TEST_CASE("trials of a sweep over the number of a plug-in's devices do not share devices") {
  Workplace place;
  write_device_recipe(place);
  place.write("sweep.toml",
              "[sweep]\nrecipe = \"tiny.toml\"\nmethod = \"grid\"\nparallel = 2\n"
              "[sweep.set]\n\"plugins.options\" = { host_devices = 4 }\n"
              "[sweep.space]\n\"devices.devices\" = [1, 2]\n");
  const auto swept = place.run({"sweep", "run", "sweep.toml", "--json"});
  INFO(swept.err);
  REQUIRE(swept.code == 0);
  const auto used = used_devices(place);
  CHECK(used.size() == 3);
  CHECK(std::set(used.begin(), used.end()).size() == 3);
}

TEST_CASE("simulated devices take the place of a plug-in's, and its options remain") {
  Workplace place;
  write_device_recipe(place);
  trained_with(place, {"plugins.options={ host_devices = 1 }", "devices.simulate=true", "devices.devices=2"});
  for (const auto& event : events_of(place, "ready")) CHECK(event.at("device") == "cpu");
}

TEST_CASE("a plug-in's own collectives, and host memory in their place") {
  Workplace place;
  write_device_recipe(place);
  trained_with(place, {"strategy=fsdp"});
  const auto expected = losses(place);
  std::string source = device_source();
  const auto replace = [&](const std::string& from, const std::string& to) {
    REQUIRE(source.find(from) != std::string::npos);
    source.replace(source.find(from), from.size(), to);
  };
  replace("static_cast<size_t>(count_), device)", "static_cast<size_t>(count_), device), .collectives = \"hostccl\"");
  // It fails, so the test sees when it is called.
  replace("  int64_t peak_memory_bytes(int device) const override",
          "  c10::intrusive_ptr<c10d::Backend> collectives(const c10::intrusive_ptr<c10d::Store>&, int, int size,\n"
          "                                                std::chrono::milliseconds) override {\n"
          "    throw std::runtime_error(\"no group of \" + std::to_string(size));\n"
          "  }\n"
          "  int64_t peak_memory_bytes(int device) const override");
  build_torch_parts(place.path(), source);
  const auto own = run_with(place, "run", {"strategy=fsdp"});
  CHECK(own.code != 0);
  CHECK_THAT(own.err,
             ContainsSubstring("plugins.accelerator: collectives() of") && ContainsSubstring("failed: no group of 2"));
  for (const std::string backend : {"shm", "gloo"}) {
    CAPTURE(backend);
    trained_with(place, {"strategy=fsdp", "devices.process_group_backend=" + backend});
    CHECK(losses(place) == expected);
  }
  CHECK(events_of(place, "ready").at(0).at("device").get<std::string>().starts_with("hostdev:"));
}

TEST_CASE("streams and pinned memory that a library states are tried before the first step") {
  Workplace place;
  write_device_recipe(place);
  for (const auto& [stated, what] :
       {std::pair(".streams = true", "streams"), std::pair(".pinned = true", "copies from pinned memory")}) {
    std::string source = device_source();
    const std::string facts = "static_cast<size_t>(count_), device)";
    const auto at = source.find(facts);
    REQUIRE(at != std::string::npos);
    build_torch_parts(place.path(), source.replace(at, facts.size(), facts + ", " + stated));
    const auto result = run_with(place, "run", {});
    CAPTURE(result.err);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring("plugins.accelerator: facts() of ") &&
                               ContainsSubstring(fmt::format("states {}, which do not work: ", what)));
  }
}

TEST_CASE("mistakes around accelerator plug-ins are reported with the place in the recipe") {
  Workplace place;
  write_device_recipe(place);
  CHECK_THAT(refused_with(place, {"plugins.accelerator="}),
             ContainsSubstring("error: `accelerator` must be the file of a library, not \"\""));
  CHECK_THAT(refused_with(place, {"plugins.accelerator=libpart.so"}),
             ContainsSubstring("there is no file") && ContainsSubstring("did you mean libparts.so?"));
  CHECK_THAT(refused_with(place, {"plugins.options={ host_device = 2 }"}),
             ContainsSubstring("host_device") && ContainsSubstring("did you mean `host_devices`?"));
  CHECK_THAT(
      refused_with(place, {"plugins.options={ host_devices = true }"}),
      ContainsSubstring("--set plugins.options=") && ContainsSubstring("the option `host_devices` must be an integer"));
  CHECK_THAT(refused_with(place, {"plugins.options={ host_devices = 9 }"}),
             ContainsSubstring("libparts.so failed: host_devices must be 0 to 4"));
  CHECK_THAT(refused_with(place, {"devices.accelerator=cpu"}),
             ContainsSubstring("devices.accelerator = \"cpu\", and a plug-in gives the devices: remove one of them") &&
                 ContainsSubstring("accelerator = \"libparts.so\""));
  CHECK_THAT(refused_with(place, {"precision=bf16-mixed"}), ContainsSubstring("this hostdev device has no bf16"));
  CHECK_THAT(refused_with(place, {"devices.process_group_backend=nccl"}),
             ContainsSubstring("needs CUDA devices, and these are hostdev devices"));
  const auto too_many = run_with(place, "run", {"devices.devices=3"});
  CHECK(too_many.code == 4);
  CHECK_THAT(too_many.err, ContainsSubstring("devices = 3, but this machine has 2 hostdev devices"));
  CHECK_THAT(run_with(place, "run", {"plugins.options={ host_devices = 0 }"}).err,
             ContainsSubstring("plugins.accelerator finds no hostdev device on this machine"));
  CHECK_THAT(place.run({"submit", "tiny.toml"}).err, ContainsSubstring("which devices the plug-in has is known only"));

  struct Wrong {
    std::string from, to, message;
  };
  const std::string type = ".type = \"hostdev\"", states = "states the device type \"";
  EveryNth chosen(2);
  for (const auto& [from, to, message] :
       {Wrong{"RUNNER_TORCH_PARTS(.accelerator", "RUNNER_TORCH_PARTS(.version = 99, .accelerator",
              "was built for version 99 of the interface of parts, and this program has version 2"},
        {type, ".type = \"cpu\"", states + "cpu\"; it must be that of an accelerator"},
        {type, ".type = \"hostdevs\"", states + "hostdevs\", which LibTorch does not know"},
        {type, ".type = \"cuda\"", states + "cuda\", which the runner has itself"},
        {".memory_bytes = memory_", ".memory_bytes = -1", "states -1 bytes of memory"}}) {
    if (!chosen()) continue;
    std::string source = device_source();
    const auto at = source.find(from);
    REQUIRE(at != std::string::npos);
    build_torch_parts(place.path(), source.replace(at, from.size(), to));
    CHECK_THAT(refused_with(place, {}), ContainsSubstring(message));
  }
}
