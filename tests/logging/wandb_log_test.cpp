// The offline file of Weights & Biases: its framing, and what attempts and ends leave in it. wandb's own classes read it in
// live_loggers_e2e_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "runner/logging/crc32.hpp"
#include "runner/logging/wandb_log.hpp"
#include "tests/logging/logged_run.hpp"

using namespace runner;
using runner::testing::LoggedRun;

namespace {

constexpr size_t block = 32768, head = 7;

/// The records of a file. Checks the head, the fragments, their checksums and the padding of blocks.
std::vector<std::string> wandb_records(const fs::path& path) {
  const auto bytes = read_file(path);
  REQUIRE(bytes.substr(0, head) == std::string(":W&B\xe1\xbe\0", head));
  std::vector<std::string> records;
  std::string open;
  for (size_t at = head; at < bytes.size();) {
    const size_t left = block - at % block;
    if (left < head) {
      CHECK(bytes.substr(at, left) == std::string(left, '\0'));
      at += left;
      continue;
    }
    uint32_t sum = 0;
    uint16_t length = 0;
    std::memcpy(&sum, &bytes[at], sizeof(sum));
    std::memcpy(&length, &bytes[at + 4], sizeof(length));
    const char type = bytes[at + 6];
    REQUIRE(at + head + length <= bytes.size());
    REQUIRE(head + length <= left);
    CHECK(sum == crc32<zlib_polynomial>(std::string_view(bytes).substr(at + 6, length + 1u)));
    if (type == 1 || type == 2) CHECK(open.empty());  // a first part may be empty: a block that ends with its header
    open += bytes.substr(at + head, length);
    if (type == 1 || type == 4) {
      records.push_back(open);
      open.clear();
    }
    at += head + length;
  }
  CHECK(open.empty());
  return records;
}

fs::path wandb_file(const WandbLog& log) {
  for (const auto& entry : fs::directory_iterator(log.place()))
    if (entry.path().extension() == ".wandb") return entry.path();
  return {};
}

/// How many records contain a text.
int64_t with(const std::vector<std::string>& records, const std::string& text) {
  return std::ranges::count_if(records, [&](const auto& record) { return record.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("the checksum is zlib's") { CHECK(crc32<zlib_polynomial>("123456789") == 0xcbf43926u); }

TEST_CASE("records that do not fit into a block are divided") {
  LoggedRun logged;
  logged.row.notes = std::string(3 * block, 'n');
  WandbLog log(logged.folder.path / "wandb", {});
  log.begin(logged.attempt());
  for (int64_t step = 1; step <= 700; ++step) {
    const PointGroup group{.from = PointGroup::From::step,
                           .step = step,
                           .points = {{"loss", step, 1.0 / static_cast<double>(step)}},
                           .event = logged.event};
    log.points(group);
  }
  log.end({.outcome = {.code = ExitCode::done, .status = "finished", .first_cause = ""}});
  CHECK(read_file(wandb_file(log)).size() > 5 * block);
  CHECK(wandb_records(wandb_file(log)).size() == 2 + 2 * 700 + 1);
}

TEST_CASE("values of one step are one row, and NaN is written as Python's json does") {
  LoggedRun logged;
  WandbLog log(logged.folder.path / "wandb", {});
  log.begin(logged.attempt());
  log.points(logged.group({{"loss", 1, std::nan("")}, {"lr", 1, 0.1}}));
  log.points(logged.group({{"val_loss", 1, INFINITY}}));
  CHECK(wandb_records(wandb_file(log)).size() == 2);  // the row of a step is written with the next step
  log.points(logged.group({{"loss", 2, 2}}));
  const auto records = wandb_records(wandb_file(log));
  REQUIRE(records.size() == 4);
  CHECK(with({records[3]}, "NaN") == 1);
  CHECK(with({records[3]}, "Infinity") == 1);
  CHECK(with({records[3]}, "0.1") == 1);
}

TEST_CASE("an attempt begins with the rows of the ledger") {
  LoggedRun logged;
  WandbLog log(logged.folder.path / "wandb", {});
  log.begin(logged.attempt());
  for (int64_t step = 1; step <= 5; ++step) log.points(logged.group({{"loss", step, 0.5}}));
  CHECK(wandb_records(wandb_file(log)).size() == 2 + 2 * 4);  // killed here: the last row was not written yet
  logged.ledger.begin_attempt(logged.run, "resume", 3);
  WandbLog again(logged.folder.path / "wandb", {});
  again.begin(logged.attempt(3));
  CHECK(again.place() == log.place());
  CHECK(wandb_records(wandb_file(again)).size() == 2 + 2 * 3);
  again.points(logged.group({{"loss", 4, 0.25}}));
  again.end({.outcome = {.code = ExitCode::done, .status = "finished", .first_cause = ""}});
  const auto records = wandb_records(wandb_file(again));
  CHECK(records.size() == 2 + 2 * 4 + 1);
  CHECK(with(records, "0.25") == 2);  // summary and history
}

TEST_CASE("a run that fails before its first attempt has no offline run; its group is in the run's record") {
  LoggedRun logged;
  logged.row.group = "baselines";
  WandbLog log(logged.folder.path / "wandb", {});
  log.end({.outcome = {.code = ExitCode::run_failed, .status = "failed", .first_cause = ""}});
  CHECK_FALSE(fs::exists(logged.folder.path / "wandb"));
  log.begin(logged.attempt());
  CHECK(with(wandb_records(wandb_file(log)),
             "\x32\x09"
             "baselines") == 1);  // field 6
}

TEST_CASE("wandb's own classes read the offline run") {
  const std::string deps = RUNNER_SOURCE_DIR "/.deps/";
  const auto python = fmt::format("PYTHONPATH={0}wandb:{0}transformers /usr/bin/python3", deps);
  if (std::system((python + " -c 'import wandb.proto.wandb_internal_pb2' 2>/dev/null").c_str()) != 0)
    SKIP("wandb's classes are missing: scripts/setup --tests");
  LoggedRun logged;
  logged.row.config = {{"model", {{"dim", 32}}}};
  logged.row.tags = {"a", "b"};
  logged.row.notes = std::string(2 * block, 'n');
  logged.row.group = "baselines";
  Recipe::Logging settings;
  settings.wandb_project = "tests";
  settings.wandb_entity = "us";
  WandbLog log(logged.folder.path / "wandb", settings);
  log.begin(logged.attempt());
  log.points(logged.group({{"loss", 1, 0.1}, {"seconds", 1, 2.5}}));
  log.points(logged.group({{"loss", 2, std::nan("")}, {"val_loss", 2, 1.0 / 3}}));
  log.end({.outcome = {.code = ExitCode::run_failed, .status = "failed", .first_cause = ""}});
  const auto out = logged.folder.path / "read";
  const auto command = fmt::format("{} {}/tests/support/read_wandb.py {} >{}", python, RUNNER_SOURCE_DIR,
                                   (logged.folder.path / "wandb").string(), out.string());
  INFO(command);
  REQUIRE(std::system(command.c_str()) == 0);
  auto text = read_file(out);
  for (size_t at; (at = text.find("NaN")) != std::string::npos;) text.replace(at, 3, "\"?\"");  // of Python's json
  const auto read = nlohmann::json::parse(text);
  const auto& run = read.at("run");
  CHECK(run.at("project") == "tests");
  CHECK(run.at("entity") == "us");
  CHECK(run.at("name") == "logged");
  CHECK(run.at("notes") == logged.row.notes);
  CHECK(run.at("tags") == logged.row.tags);
  CHECK(run.at("config") == logged.row.config);
  CHECK(run.at("group") == "baselines");
  CHECK(read.at("exit") == 1);
  REQUIRE(read.at("history").size() == 2);
  CHECK(read.at("history")[0].at("_step") == 1);
  CHECK(read.at("history")[0].at("loss") == 0.1);
  CHECK(read.at("history")[0].at("_runtime") == 2.5);
  CHECK(read.at("history")[1].at("loss") == "?");
  CHECK(read.at("history")[1].at("val_loss") == 1.0 / 3);
  CHECK(read.at("summary").at("_step") == 2);
}
