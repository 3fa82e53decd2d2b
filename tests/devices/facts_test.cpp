// Facts about the machine: as JSON, and as a replacement of the real machine.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <cstdlib>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/devices/devices.hpp"

using namespace runner;
using Catch::Matchers::Message;

TEST_CASE("facts are the same after a round trip through JSON") {
  Facts facts;
  facts.devices = {
      {.index = 0, .name = "A", .memory_bytes = 80ll << 30, .free_bytes = 5, .major = 8, .minor = 6, .processes = 1}};
  facts.cuda_module = true;
  facts.cores = 7;
  facts.memory_bytes = 1ll << 40;
  facts.hostname = "box";
  facts.avx2 = true;
  CHECK(to_json(facts_from_json(to_json(facts))) == to_json(facts));
  CHECK(to_json(facts)["cuda"][0]["memory_bytes"] == 80ll << 30);
}

TEST_CASE("abbreviated facts are completed") {
  Facts facts =
      facts_from_json({{"cuda", {{{"name", "A"}, {"memory_bytes", 100}}, {{"name", "B"}, {"memory_bytes", 50}}}}});
  CHECK(facts.devices[1].index == 1);
  CHECK(facts.devices[1].free_bytes == 50);
  CHECK(facts.devices[1].processes == -1);
  CHECK(facts_from_json(nlohmann::json::object()).cuda_problem == "none listed in the facts given");
}

TEST_CASE("wrong facts are refused by name") {
  CHECK_THROWS_MATCHES(facts_from_json({{"core", 4}}), Error,
                       Message("facts: unknown key `core`; did you mean `cores`?"));
  CHECK_THROWS_MATCHES(facts_from_json({{"cores", "four"}}), Error,
                       Message("facts: `cores` cannot be \"four\" (string)"));
  CHECK_THROWS_MATCHES(facts_from_json({1, 2}), Error, Message("facts: [1,2] must be an object, not array"));
}

TEST_CASE("RUNNER_FAKE_FACTS replaces the machine") {
  fs::path file = fs::temp_directory_path() / ("runner-facts-" + std::to_string(::getpid()) + ".json");
  setenv("RUNNER_FAKE_FACTS", file.c_str(), 1);
  write_file_atomic(file, R"({"cuda": [{"name": "H", "memory_bytes": 10}], "cores": 64})");
  Facts facts = read_facts();
  CHECK(facts.cores == 64);
  CHECK(facts.devices.size() == 1);
  write_file_atomic(file, "{");
  CHECK_THROWS_MATCHES(read_facts(), Error,
                       Message("RUNNER_FAKE_FACTS names " + file.string() + ", which is not JSON"));
  fs::remove(file);
  CHECK_THROWS_MATCHES(read_facts(), Error, Message("cannot read " + file.string() + ": No such file or directory"));
  unsetenv("RUNNER_FAKE_FACTS");
}
