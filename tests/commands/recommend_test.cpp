// `runner recommend` for users and programs: text, JSON, a recipe, errors, exit codes.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "tests/support/command.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

const fs::path cases = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/selection";

/// The output of `recommend`, with each long line in one piece.
CommandResult recommend(const std::string& model, std::vector<std::string> options) {
  std::vector<std::string> arguments = {"recommend", (cases / model).string()};
  arguments.insert(arguments.end(), options.begin(), options.end());
  auto result = Workplace().run(arguments);
  const std::string cut = "\n      ";
  for (size_t at = result.out.find(cut); at != std::string::npos; at = result.out.find(cut, at))
    result.out.replace(at, result.out.find_first_not_of(' ', at + 1) - at, " ");
  return result;
}

}  // namespace

TEST_CASE("expectation 9: recommend prints its choice, the reason, the alternatives, and what would change it") {
  auto result = recommend("llama-7b.toml", {"--device-kind", "h100-80g", "--devices", "8", "--why"});
  REQUIRE(result.code == 0);
  CHECK_THAT(result.out, ContainsSubstring("fsdp FULL_SHARD, micro-batch"));
  CHECK_THAT(result.out,
             ContainsSubstring("because 6.74 B parameters are 3B or more, and memory is limited: DDP does not fit"));
  CHECK_THAT(result.out, ContainsSubstring("rule: 3B parameters and up, very limited memory -> FSDP or DeepSpeed stage "
                                           "3 (Strategy Selection Guide, row 4)"));
  CHECK_THAT(result.out, ContainsSubstring("limit per rank: 79.6 GiB of h100-80g"));
  CHECK_THAT(result.out, ContainsSubstring("> fsdp FULL_SHARD"));
  CHECK_THAT(result.out, ContainsSubstring("what would change the answer:\n"));
  CHECK_THAT(result.out, ContainsSubstring("num_nodes = 2: "));
  const auto brief = recommend("llama-7b.toml", {"--device-kind", "h100-80g", "--devices", "8"}).out;
  CHECK(recommend("llama-7b.toml", {"--device-kind", "h100-80g:8"}).out == brief);
  CHECK(recommend("llama-7b.toml", {"--device-kind", "h100-80g:8", "--devices", "4"}).code == 2);
  CHECK_THAT(brief, !ContainsSubstring("rule: ") && !ContainsSubstring("MFU: ") && ContainsSubstring("\n  because ") &&
                        ContainsSubstring("--why: the rule, and what the figures mean\n"));
}

TEST_CASE("the lines that recommend prints into a pipe are not wider than 120 characters") {
  const auto told = Workplace().run({"recommend", (cases / "llama-7b.toml").string(), "--device-kind", "h100-80g:8",
                                     "--why", "--all", "--set", "strategy=ddp"},
                                    {{"LC_ALL", "C"}});
  for (const auto& line : split(told.out, '\n')) CHECK(line.size() <= 120);
  CHECK_THAT(told.out, ContainsSubstring("\n        ") && ContainsSubstring("\n  because "));
}

TEST_CASE("recommend --json has the structure that scripts rely on") {
  auto result = recommend("llama-7b.toml", {"--device-kind", "a100-80g", "--world-size", "16", "--json"});
  REQUIRE(result.code == 0);
  auto json = nlohmann::json::parse(result.out);
  CHECK(json["schema"] == 1);
  CHECK(json["chosen"]["strategy"] == "fsdp");
  for (const char* key : {"options", "rule", "reason"}) CHECK(json["chosen"].contains(key));
  CHECK(json["devices"] == "2 nodes of 8 x a100-80g");
  int chosen = 0;
  for (const auto& candidate : json["candidates"]) {
    INFO(candidate.dump());
    for (const char* key : {"strategy", "options", "fits", "verdict", "reason"}) CHECK(candidate.contains(key));
    chosen += candidate["verdict"] == "chosen";
    if (candidate["verdict"] == "refused") continue;
    int64_t sum = 0;
    for (const auto& [part, bytes] : candidate["memory_parts"].items()) sum += bytes.get<int64_t>();
    CHECK(sum == candidate["memory_bytes_per_rank"]);
  }
  CHECK(chosen == 1);
}

TEST_CASE("recommend --program prints the instructions of a step of the chosen plan") {
  auto result = recommend("llama-7b.toml", {"--device-kind", "h100-80g", "--devices", "8", "--program"});
  REQUIRE(result.code == 0);
  INFO(result.out);
  const auto lines = split(result.out, '\n');
  CHECK_THAT(lines[0], Catch::Matchers::StartsWith("a step of fsdp FULL_SHARD with "));
  CHECK(lines[1] == "start_gather     embedding                250.0 MiB over 8 ranks");
  CHECK(lines[2] == "wait_gather      embedding");
  CHECK_THAT(result.out, ContainsSubstring("\nforward          embedding                micro-batch 0\n"));
  CHECK_THAT(result.out, ContainsSubstring("\nstart_reduce     head                     500.0 MiB over 8 ranks\n"));
  CHECK_THAT(result.out, ContainsSubstring("\nnorm\nupdate           embedding\n"));
  CHECK_THAT(result.out, ContainsSubstring(" have the same instructions as micro-batch 1.\n"));
  CHECK_THAT(result.out, ContainsSubstring("\nforward          embedding                micro-batch 1\n"));
  auto refused = recommend("llama-7b.toml", {"--device-kind", "h100-80g", "--program", "--toml"});
  CHECK(refused.code == 2);
}

TEST_CASE("host memory of another machine is unknown, which is said, or given") {
  const std::vector<std::string> card = {"--device-kind", "rtx4090", "--devices", "1"};
  auto unknown = recommend("llama-7b.toml", card);
  REQUIRE(unknown.code == 0);
  CHECK_THAT(unknown.out, ContainsSubstring("note: the host memory of a node is not known, and this plan needs 1") &&
                              ContainsSubstring("GiB of it: give it with --host-memory"));
  auto with = card;
  with.insert(with.end(), {"--host-memory", "512GiB"});
  auto enough = recommend("llama-7b.toml", with);
  CHECK(enough.code == 0);
  CHECK_THAT(enough.out, !ContainsSubstring("note: the host memory"));
  with.back() = "32GiB";
  CHECK(recommend("llama-7b.toml", with).code == 1);
  with.back() = "much";
  CHECK_THAT(recommend("llama-7b.toml", with).err, ContainsSubstring("--host-memory must be a size"));
  CHECK_THAT(recommend("llama-7b.toml", {"--devices", "0"}).err, ContainsSubstring("--devices: must be at least 1"));
}

TEST_CASE("recommend --toml prints a recipe with the overrides of the command and the recommended values") {
  auto result = recommend("llama-7b.toml", {"--device-kind", "h100-80g", "--devices", "8", "--toml", "--set",
                                            "optimizer.lr=0.5", "run.seed=3", "--unset", "data.shuffle"});
  REQUIRE(result.code == 0);
  CHECK(result.out.starts_with(
      "extends = \"" + (cases / "llama-7b.toml").string() +
      "\"\nunset = [\"data.shuffle\"]\n\n[devices]\ndevices = 8\n\n[optimizer]\nlr = 0.5\n\n[run]\nseed = 3\n\n"
      "[strategy]\nname = \"fsdp\"\nsharding_strategy = \"FULL_SHARD\"\n\n[train]\n"
      "micro_batch_size = "));
}

TEST_CASE("the output of recommend --toml has every value of the recommendation") {
  Workplace place;
  const auto printed = [&](const std::string& base, std::vector<std::string> options) {
    write_tiny_recipe(place, base);
    options.insert(options.begin(), {"recommend", "tiny.toml", "--toml"});
    auto result = place.run(options);
    INFO(result.err);
    REQUIRE(result.code == 0);
    place.write("recommended.toml", result.out);
    INFO(result.out);
    auto read = place.run({"print", "recommended.toml", "--json"});
    INFO(read.err);
    REQUIRE(read.code == 0);
    return nlohmann::json::parse(read.out).at("config");
  };
  for (const auto& [devices, option] : {std::pair("--set", "devices=1"), {"--devices", "1"}}) {
    auto one = printed("", {devices, option});
    CHECK(one.at("strategy").at("name") == "single");
    CHECK(one.at("devices").at("cpu_processes") == 1);
  }
  auto recomputed =
      printed("[strategy]\nname = \"ddp\"\nactivation_checkpointing = true\nprecision_plugin = \"bf16-mixed\"\n", {});
  CHECK(recomputed.at("activation_checkpointing").at("mode") == "all");
  CHECK(recomputed.at("precision").at("mode") == "bf16-mixed");
  auto named = printed("[strategy]\nname = \"fsdp\"\nsharding_strategy = \"SHARD_GRAD_OP\"\nforward_prefetch = true\n",
                       {"--set", "devices=1"});
  CHECK(named.at("strategy") == nlohmann::json{{"name", "single"}});
  auto other = printed("[strategy]\nname = \"ddp\"\nbucket_cap_mb = 3\n", {});
  CHECK(other.at("strategy").at("name") == "ddp");
  auto patient =
      printed("early_stopping = { patience = 3, min_delta = 0.5 }\n", {"--set", "train.early_stopping.patience=10"});
  CHECK(patient.at("train").at("early_stopping").at("patience") == 10);
  CHECK(patient.at("train").at("early_stopping").at("min_delta") == 0.5);
}

TEST_CASE("recommend takes the faster pair of micro-batch and recomputation, and lists no change that is slower") {
  const auto documented = recommend("llama-7b.toml", {"--device-kind", "rtx4090", "--devices", "1", "--set",
                                                      "data.seq_len=2048", "train.global_batch_size=8"})
                              .out;
  CHECK_THAT(documented, ContainsSubstring("micro-batch 8 x 1 rank = 8 sequences") &&
                             ContainsSubstring("faster because the micro-batch is larger") &&
                             !ContainsSubstring("train.global_batch_size = 4: ") &&
                             !ContainsSubstring("\n  selection.policy = \"fastest\": "));
  CHECK_THAT(documented, ContainsSubstring("GiB a rank and ") && ContainsSubstring("GiB of host memory)\n"));
  const auto from = documented.find("what would change the answer:\n");
  REQUIRE(from != std::string::npos);
  const auto end = documented.find("other ways of training", from);
  for (const auto& line : split(documented.substr(from, end - from), '\n'))
    if (line.starts_with("  ")) CHECK_THAT(line, ContainsSubstring(" times the tokens/s"));
}

TEST_CASE("recommend offers adapters a base in 16 bits, and notes that checkpoints contain a base without init_from") {
  const std::vector<std::string> options = {"--device-kind", "rtx4090", "--set", "fine_tune.method=lora", "--json"};
  const auto json = nlohmann::json::parse(recommend("llama-7b.toml", options).out);
  const auto& offer = json.at("offers").at(0);
  CHECK(offer.at("what") == "a frozen base in 16 bits");
  CHECK(offer.at("lines").at(0) == "precision = \"bf16-true\"  # bf16-mixed stores the frozen base in 32 bits");
  CHECK(offer.at("host_bytes_per_rank") < json.at("candidates").at(1).at("host_bytes_per_rank"));
  const std::string note =
      "fine_tune.method = \"lora\" without model.init_from: the frozen parameters keep the random ";
  CHECK_THAT(json.at("notes").at(0).get<std::string>(), ContainsSubstring(note));
  CHECK_THAT(recommend("llama-7b.toml", {options.begin(), options.end() - 1}).out, ContainsSubstring("note: " + note));
}

TEST_CASE("a global batch that ranks cannot share is replaced by the next possible one, with a note") {
  const std::vector<std::string> asked = {
      "--device-kind", "h100-80g", "--world-size", "64", "--set", "train.global_batch_size=16"};
  auto answer = [&](std::vector<std::string> more) {
    more.insert(more.begin(), asked.begin(), asked.end());
    auto result = recommend("gpt-124m.toml", more);
    REQUIRE(result.code == 0);
    return result.out;
  };
  CHECK_THAT(answer({}), ContainsSubstring("micro-batch 1 x 64 ranks = 64 sequences of") &&
                             ContainsSubstring("\n  train.global_batch_size = 64: "
                                               "the recipe's 16 cannot be divided among 64 ranks\n"));
  CHECK_THAT(answer({"--set", "train.micro_batch_size=2", "--toml"}),
             ContainsSubstring("\n[train]\nglobal_batch_size = 128\nmicro_batch_size = 2\n"));
  auto json = nlohmann::json::parse(answer({"--json"}));
  CHECK(json["global_batch_size"] == 64);
  CHECK(json["asked_global_batch_size"] == 16);
  CHECK_THAT(answer({"--set", "train.global_batch_size=640"}), !ContainsSubstring("cannot be divided"));
  auto absurd = recommend("gpt-124m.toml", {"--device-kind", "h100-80g", "--world-size", "64", "--set",
                                            "train.global_batch_size=9223372036854775807"});
  CHECK(absurd.code == 2);
  CHECK_THAT(absurd.err, ContainsSubstring("`global_batch_size` must be at most 2147483647, not 9223372036854775807"));
}

TEST_CASE("the output of --toml is a recipe") {
  Workplace place;
  auto printed_recipe = [&](const std::string& model, std::vector<std::string> options) {
    std::vector<std::string> words = {"recommend", (cases / model).string(), "--toml"};
    words.insert(words.end(), options.begin(), options.end());
    auto printed = place.run(words);
    REQUIRE(printed.code == 0);
    place.write("recommended.toml", printed.out);
    auto checked = place.run({"print", "recommended.toml"});
    INFO(printed.out << checked.err);
    CHECK(checked.code == 0);
    return printed.out;
  };
  printed_recipe("llama-7b.toml", {"--device-kind", "h100-80g", "--devices", "8"});
  printed_recipe("llama-7b.toml", {"--device-kind", "rtx4090", "--devices", "1"});
  CHECK_THAT(
      printed_recipe("gpt-124m.toml", {"--device-kind", "h100-80g", "--devices", "1", "--set", "strategy.timeout=30m"}),
      !ContainsSubstring("timeout"));
  CHECK_THAT(
      printed_recipe("gpt-124m.toml", {"--device-kind", "h100-80g", "--devices", "2", "--set", "strategy.timeout=30m"}),
      ContainsSubstring("timeout = \"30m\""));
}

TEST_CASE("the strategy of the recipe is one of the candidates") {
  auto named =
      recommend("llama-7b.toml", {"--device-kind", "h100-80g", "--devices", "8", "--set", "strategy=fsdp_cpu_offload"});
  CHECK_THAT(named.out,
             ContainsSubstring("> fsdp FULL_SHARD  ") && ContainsSubstring("  fsdp FULL_SHARD, the recipe's own  "));
  auto listed = recommend("llama-7b.toml", {"--device-kind", "h100-80g", "--devices", "8", "--set", "strategy=ddp"});
  CHECK_THAT(listed.out, ContainsSubstring("  ddp, the recipe's own  "));
  auto json =
      recommend("llama-7b.toml", {"--device-kind", "h100-80g", "--devices", "8", "--set", "strategy=ddp", "--json"})
          .json();
  for (const auto& candidate : json.at("candidates"))
    CHECK(candidate.at("recipes_own") == (candidate.at("strategy") == "ddp"));
}

TEST_CASE("recommend prints how a rule differs from its document") {
  auto medium = recommend("gpt-774m.toml", {"--device-kind", "a100-40g", "--devices", "8", "--why"});
  CHECK_THAT(medium.out,
             ContainsSubstring("(Strategy Selection Guide, row 3)\n  differs: the guide recommends this if memory "
                               "is limited, and Lightning's user guide recommends DDP; here, "));
  auto single = recommend("gpt-1558m.toml", {"--device-kind", "t4", "--why"});
  CHECK_THAT(single.out, !ContainsSubstring("differs: "));
}

TEST_CASE("if nothing fits, recommend exits with 1 and prints the missing memory and solutions") {
  auto result = recommend("gpt-1558m.toml", {"--device-kind", "t4", "--set", "devices.memory_limit=3GiB"});
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("nothing fits: the least is "));
  CHECK_THAT(result.err,
             ContainsSubstring(" more than devices.memory_limit = 3.00 GiB\npossible changes, cheapest first:\n  "
                               "devices.memory_limit = \"14GiB\", the maximum  ("));
  CHECK_THAT(result.err, ContainsSubstring("\n  precision = \"16-true\"  ("));
  CHECK_THAT(result.out, ContainsSubstring("does not fit: "));
}

TEST_CASE("recommend reads the usual names of a device") {
  for (const char* name : {"rtx4090-24g", "4090", "RTX4090"}) {
    const auto result = recommend("gpt-124m.toml", {"--device-kind", name, "--json"});
    INFO(name << ": " << result.err);
    CHECK(nlohmann::json::parse(result.out).at("devices") == "1 x rtx4090");
  }
}

TEST_CASE("recommend refuses wrong requests") {
  auto wrong = [](std::vector<std::string> options) {
    auto result = recommend("gpt-124m.toml", std::move(options));
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK_THAT(
      wrong({"--device-kind", "h100"}),
      ContainsSubstring("unknown device kind \"h100\", did you mean \"h100-80g\" or \"h100-80g-pcie\"?; known: "));
  CHECK_THAT(wrong({"--device-kind", "24GB"}),
             ContainsSubstring("did you mean \"a10\", \"l4\", \"rtx3090\" or \"rtx4090\"?; known: "));
  CHECK_THAT(wrong({"--device-kind", "v100"}),
             ContainsSubstring(
                 "v100 has compute capability 7.0, but this runner is built for CUDA 13, which needs 7.5 or later"));
  CHECK_THAT(wrong({"--device-kind", "l4", "--world-size", "12"}),
             ContainsSubstring("--world-size 12 is not a number of full nodes of 8; 8 and 16 are"));
  CHECK_THAT(wrong({"--device-kind", "l4", "--world-size", "16", "--devices", "4"}),
             ContainsSubstring("give one or the others"));
  CHECK_THAT(wrong({"--device-kind", "t4", "--set", "precision=bf16-mixed"}),
             ContainsSubstring("this CUDA device has no bf16"));
}

namespace {

/// A worker with twelve steps of the same duration.
std::string steps_of(const std::string& seconds) {
  return R"(i=1
while [ $i -le 12 ]; do
  emit '{"event":"step","step":'$i',"epoch":0,"loss":1.5,"lr":0.1,"grad_norm":1,"tokens":9,"seconds":)" +
         seconds + R"(,"data_wait_s":0,"memory_bytes":1,"skipped":false}'
  i=$((i+1))
done
emit '{"event":"finished","step":12,"final_loss":1.5}')";
}

nlohmann::json recommendation(const Workplace& place, std::vector<std::string> words = {}) {
  words.insert(words.begin(), {"recommend", "tiny.toml", "--devices", "1", "--json"});
  auto result = place.run(words);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return nlohmann::json::parse(result.out);
}

}  // namespace

TEST_CASE("recommend learns from earlier runs, reports that, and prints an error of the time", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker(steps_of("0.2"));
  const std::vector<std::string> run = {"run", "tiny.toml", "--set", "devices=1", "--set", "strategy=single"};
  auto before = recommendation(place);
  CHECK(before["times"]["earlier_runs"] == 0);
  CHECK_THAT(before["times"]["source"].get<std::string>(), ContainsSubstring("not known: `runner doctor --calibrate`"));
  CHECK(before["candidates"][0]["step_seconds"].is_null());
  REQUIRE(place.run(run).code == 0);

  auto after = recommendation(place);
  CHECK(after["times"]["earlier_runs"] == 1);
  const auto& single = after["candidates"][0];
  REQUIRE(single["strategy"] == "single");
  CHECK(std::abs(single["step_seconds"].get<double>() / 0.2 - 1) < 0.1);
  CHECK((single["step_seconds_error"] > 0.04 && single["step_seconds_error"] < 0.2));
  auto text = place.run({"recommend", "tiny.toml", "--devices", "1", "--why"}, {{"LC_ALL", "C"}}).out;
  CHECK_THAT(text, ContainsSubstring("times: a guess at this CPU, corrected by 1 earlier run\n") &&
                       ContainsSubstring(" +-") && ContainsSubstring("STEP has a standard error: about two of three"));
  // There was no run of another width, so its error is larger.
  auto other = recommendation(place, {"--set", "model.dim=256"});
  CHECK(other["candidates"][0]["step_seconds_error"] > single["step_seconds_error"]);
  CHECK(recommendation(place, {"--set", "precision=bf16-mixed"})["times"]["earlier_runs"] == 0);

  REQUIRE(place.run(run).code == 0);
  auto shown = place.run({"show", "last", "--json"}).json();
  CHECK(std::abs(shown["predicted"]["step_seconds"].get<double>() / 0.2 - 1) < 0.1);
  CHECK(shown["measured"]["step_seconds"] == 0.2);
  CHECK(recommendation(place)["times"]["earlier_runs"] == 2);

  // A run on a busy machine has little weight.
  place.replace_worker(steps_of("0.6") +
                       R"(
emit '{"event":"memory","rank":0,"peak_bytes":1,"rss_peak_bytes":1,"lost_share":0.7}')");
  REQUIRE(place.run(run).code == 0);
  CHECK(place.run({"show", "last", "--json"}).json()["measured"]["lost_share"] == 0.7);
  CHECK(std::abs(recommendation(place)["candidates"][0]["step_seconds"].get<double>() / 0.2 - 1) < 0.1);
}

TEST_CASE("a disturbed calibration is not used, and recommend explains why there are no times", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.replace_worker(R"(emit '{"event":"calibration","what":"product","rows":512,"width":64,"flops_per_s":1e9}'
emit '{"event":"calibration","what":"verdict","disturbed":"other work took the CPUs for 40 % of the time"}')");
  auto result = place.run({"doctor", "--calibrate"});
  CHECK(result.code == 4);
  CHECK_THAT(result.err,
             ContainsSubstring("disturbed, and not used: other work took the CPUs for 40 % of the time. Run "
                               "`runner doctor --calibrate` again when the machine is quiet"));
  auto answer = recommendation(place);
  CHECK_THAT(answer["times"]["source"].get<std::string>(),
             ContainsSubstring("not known: the calibration of 20") &&
                 ContainsSubstring(" was disturbed (other work took the CPUs for 40 % of the time). Run `runner doctor "
                                   "--calibrate` again"));
  CHECK(answer["candidates"][0]["step_seconds"].is_null());
}

TEST_CASE("D.9: a 7B model that does not fit one GPU of 24 GB gets LoRA and QLoRA as answers", "[rank20]") {
  const std::vector<std::string> card = {"--device-kind", "rtx4090", "--devices", "1", "--host-memory", "32GiB"};
  const auto result = recommend("llama-7b.toml", card);
  INFO(result.err);
  CHECK(result.code == 1);
  CHECK_THAT(result.err, ContainsSubstring("other ways of training, and what to write in the recipe:\n"));
  CHECK_THAT(result.err,
             ContainsSubstring("\n  LoRA: low-rank adapters are trained, and the base is frozen (single, "));
  CHECK_THAT(result.err, ContainsSubstring("\n    fine_tune.method = \"lora\"\n"));
  CHECK_THAT(result.err, ContainsSubstring("\n    fine_tune.quantization = \"nf4\"\n"));
  auto arguments = card;
  arguments.emplace_back("--json");
  const auto json = nlohmann::json::parse(recommend("llama-7b.toml", arguments).out);
  const auto& offers = json["offers"];
  REQUIRE(offers.size() >= 2);
  const auto &lora = offers[offers.size() - 2], &qlora = offers.back();
  const int64_t limit = json["limit_bytes_per_rank"];
  for (const auto* offer : {&lora, &qlora}) {
    CHECK((*offer)["fits"] == true);
    CHECK((*offer)["memory_bytes_per_rank"] < limit);
  }
  // What the lines say is what was predicted.
  std::vector<std::string> lines = card;
  lines.emplace_back("--json");
  lines.emplace_back("--set");
  for (const auto& line : qlora["lines"]) {
    auto text = line.get<std::string>();
    text.replace(text.find(" = "), 3, "=");
    if (!text.starts_with("model.")) lines.push_back(text);
  }
  const auto with = nlohmann::json::parse(recommend("llama-7b.toml", lines).out);
  CHECK(with["chosen"]["strategy"] == "single");
  CHECK(with["offers"].empty());
}
