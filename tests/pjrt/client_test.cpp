// XLA's compiler and runtime through a plug-in: programs on one and on several devices, donation, errors, stored programs.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "runner/base/error.hpp"
#include "strategies/pjrt/client.hpp"
#include "strategies/pjrt/module_error.hpp"
#include "tests/pjrt/run_program.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::pjrt;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using runner::testing::loaded_cpu_plugin;
using runner::testing::on_replicas;
using runner::testing::refusal;

namespace {

/// A module whose function `main` has these arguments, result and body.
std::string module(int replicas, const std::string& signature, const std::string& body) {
  return "module @test attributes {mhlo.num_replicas = " + std::to_string(replicas) +
         " : i32, mhlo.num_partitions = 1 : i32} {\n  func.func public @main" + signature + " {\n" + body + "  }\n}\n";
}

/// The sum over all replicas, in the memory of the argument.
std::string sum_module(int replicas) {
  std::string all;
  for (int i = 0; i < replicas; ++i) all += (i ? ", " : "") + std::to_string(i);
  return module(replicas, "(%a: tensor<2xf32> {tf.aliasing_output = 0 : i32}) -> tensor<2xf32>",
                R"(    %b = "stablehlo.all_reduce"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %s = stablehlo.add %x, %y : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) {replica_groups = dense<[[)" +
                    all + "]]> : tensor<1x" + std::to_string(replicas) +
                    R"(xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    return %b : tensor<2xf32>
)");
}

Buffer floats(const Client& client, const std::vector<float>& values, int device) {
  return client.upload(std::as_bytes(std::span(values)), ElementType::float32, {std::ssize(values)}, device);
}

std::vector<float> read(const Buffer& buffer) {
  std::vector<float> values(static_cast<size_t>(Type{buffer.type(), buffer.shape()}.numel()));
  buffer.read(std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace

TEST_CASE("a sum over replicas is on every device, in the memory of the arguments that were donated", "[pjrt]") {
  for (const int replicas : {1, 2, 4}) {
    const Client client(loaded_cpu_plugin(), {.cpu_devices = replicas});
    REQUIRE(client.devices() == replicas);
    CHECK(client.platform() == "cpu");
    const auto program = client.compile(sum_module(replicas), on_replicas(replicas));
    CHECK(program.memory().arguments == 8);
    CHECK(program.memory().aliased == 8);
    std::vector<Buffer> held;
    std::vector<std::vector<const Buffer*>> arguments;
    for (int i = 0; i < replicas; ++i) held.push_back(floats(client, {1.0f + static_cast<float>(i), 10}, i));
    for (const auto& buffer : held) arguments.push_back({&buffer});
    auto execution = program.execute(arguments);
    execution.wait();
    const auto n = static_cast<float>(replicas);
    for (const auto& outputs : execution.outputs) {
      REQUIRE(outputs.size() == 1);
      CHECK(read(outputs[0]) == std::vector{n * (n + 1) / 2, 10 * n});
    }
    for (const auto& buffer : held) {
      CHECK(buffer.donated());
      CHECK_THROWS_MATCHES(read(buffer), Error, MessageMatches(ContainsSubstring("donated")));
    }
  }
}

TEST_CASE("types and shapes of arrays are kept, and outputs are arguments of the next execution", "[pjrt]") {
  const Client client(loaded_cpu_plugin(), {.cpu_devices = 1});
  const auto doubled =
      client.compile(module(1, "(%a: tensor<2x3xi64>, %b: tensor<2xbf16>) -> (tensor<2x3xi64>, tensor<2xbf16>)",
                            "    %c = stablehlo.add %a, %a : tensor<2x3xi64>\n"
                            "    return %c, %b : tensor<2x3xi64>, tensor<2xbf16>\n"),
                     on_replicas(1));
  const std::vector<int64_t> numbers = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> halves = {0x3f80, 0x4000};
  const auto a = client.upload(std::as_bytes(std::span(numbers)), ElementType::int64, {2, 3}, 0);
  const auto b = client.upload(std::as_bytes(std::span(halves)), ElementType::bfloat16, {2}, 0);
  const auto once = doubled.execute({{&a, &b}});
  const auto twice = doubled.execute({{&once.outputs[0][0], &once.outputs[0][1]}});
  CHECK(twice.outputs[0][0].shape() == std::vector<int64_t>{2, 3});
  CHECK(twice.outputs[0][0].type() == ElementType::int64);
  CHECK(twice.outputs[0][1].type() == ElementType::bfloat16);
  std::vector<int64_t> result(6);
  twice.outputs[0][0].read(std::as_writable_bytes(std::span(result)));
  CHECK(result == std::vector<int64_t>{4, 8, 12, 16, 20, 24});
  CHECK_FALSE(a.donated());
}

TEST_CASE("arrays without elements are arrays", "[pjrt]") {
  const Client client(loaded_cpu_plugin(), {.cpu_devices = 1});
  const auto same = client.compile(
      module(1, "(%a: tensor<0x3xf32>) -> tensor<0x3xf32>", "    return %a : tensor<0x3xf32>\n"), on_replicas(1));
  const Buffer empty = client.upload({}, ElementType::float32, {0, 3}, 0);
  const auto execution = same.execute({{&empty}});
  CHECK(execution.outputs[0][0].shape() == std::vector<int64_t>{0, 3});
  CHECK(read(execution.outputs[0][0]).empty());
}

TEST_CASE("an array can be the host's memory, without a copy", "[pjrt]") {
  const Client client(loaded_cpu_plugin(), {.cpu_devices = 1});
  alignas(64) float values[2] = {1, 2};
  const auto array =
      client.upload(std::as_bytes(std::span(values)), ElementType::float32, {2}, 0, HostMemory::borrowed);
  values[0] = 5;  // breaks the promise, to see it
  CHECK(read(array) == std::vector<float>{5, 2});
}

TEST_CASE("a stored program gives the same results in another client", "[pjrt]") {
  const std::string stored = [] {
    const Client client(loaded_cpu_plugin(), {.cpu_devices = 2});
    return client.compile(sum_module(2), on_replicas(2)).serialized();
  }();
  const Client client(loaded_cpu_plugin(), {.cpu_devices = 2});
  const auto program = client.load(stored, on_replicas(2));
  const Buffer a = floats(client, {1, 2}, 0), b = floats(client, {10, 20}, 1);
  auto execution = program.execute({{&a}, {&b}});
  execution.wait();
  CHECK(read(execution.outputs[0][0]) == std::vector<float>{11, 22});
  CHECK_THROWS_MATCHES(client.load("no program", on_replicas(2)), Error,
                       MessageMatches(ContainsSubstring("a stored program cannot be read")));
}

TEST_CASE("errors of a program name its line", "[pjrt]") {
  const Client client(loaded_cpu_plugin(), {.cpu_devices = 1});
  const auto refused = [&](const std::string& body, const CompileOptions& options = on_replicas(1)) {
    return refusal([&] { (void)client.compile(module(1, "(%a: tensor<2xf32>) -> tensor<2xf32>", body), options); });
  };
  CHECK(refused("    %b = stablehlo.ad %a, %a : tensor<2xf32>\n    return %b : tensor<2xf32>\n") ==
        "1: XLA refuses line 3 of the program: custom op 'stablehlo.ad' is unknown\n"
        "    3 |     %b = stablehlo.ad %a, %a : tensor<2xf32>\n"
        "      |          ^");
  CHECK(refused("    return %z : tensor<2xf32>\n") ==
        "1: XLA refuses line 3 of the program: use of undeclared SSA value name\n"
        "    3 |     return %z : tensor<2xf32>\n"
        "      |            ^");
  auto unknown_flag = on_replicas(1);
  unknown_flag.flags["xla_no_such_flag"] = true;
  CHECK(refused("    return %a : tensor<2xf32>\n", unknown_flag) ==
        "1: XLA refuses the program: No such compile option: 'xla_no_such_flag'");
  CHECK(module_error("", "-:7:1: error: far away") ==
        "XLA refuses line 7 of the program: far away\n    7 | \n      | ^");
}

TEST_CASE("an argument of another size is refused before the program starts", "[pjrt]") {
  const Client client(loaded_cpu_plugin(), {.cpu_devices = 1});
  const auto program = client.compile(sum_module(1), on_replicas(1));
  const Buffer wrong = floats(client, {1}, 0);
  CHECK_THROWS_MATCHES(program.execute({{&wrong}}), Error,
                       MessageMatches(ContainsSubstring("XLA cannot start the program")));
}

TEST_CASE("a device without enough memory is an error of its own", "[pjrt]") {
  const Client client(std::make_shared<const Plugin>(PJRT_FULL_MEMORY));
  const auto program = client.compile(sum_module(1), on_replicas(1));
  const Buffer first = floats(client, {1, 2}, 0), second = floats(client, {1, 2}, 0);
  program.execute({{&first}}).wait();
  CHECK_THROWS_MATCHES(program.execute({{&second}}), OutOfMemory,
                       MessageMatches(ContainsSubstring("Ran out of memory in memory space hbm")));
  const auto other = [&] { client.compile("no module", on_replicas(1)); };
  try {
    other();
    FAIL("it was compiled");
  } catch (const OutOfMemory&) {
    FAIL("a mistake in a program is not about memory");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).starts_with("XLA refuses"));
  }
}

TEST_CASE("a library that is no plug-in, or missing, is named", "[pjrt]") {
  CHECK_THROWS_MATCHES(Plugin("/no/such/plugin.so"), Error,
                       MessageMatches(ContainsSubstring("cannot load the PJRT plug-in /no/such/plugin.so")));
  CHECK_THROWS_MATCHES(
      Plugin("libm.so.6"), Error,
      MessageMatches(ContainsSubstring("libm.so.6 is no PJRT plug-in: it has no function GetPjrtApi")));
  CHECK(Plugin(PJRT_CPU_PLUGIN).version().starts_with("0."));
}

TEST_CASE("a plug-in of which a part is missing is refused before it is loaded", "[pjrt]") {
  const TemporaryFolder folder;
  const auto part = folder.path / "plugin.so";
  std::vector<char> bytes(1 << 20);
  std::ifstream(PJRT_CPU_PLUGIN, std::ios::binary).read(bytes.data(), std::ssize(bytes));
  std::ofstream(part, std::ios::binary).write(bytes.data(), std::ssize(bytes));
  CHECK_THROWS_MATCHES(Plugin(part.string()), Error,
                       MessageMatches(ContainsSubstring("plugin.so is incomplete: it has 1048576 of ")));
}

TEST_CASE("a plug-in with another version of the interface is refused by name", "[pjrt]") {
  CHECK_THROWS_MATCHES(
      Plugin(PJRT_OTHER_VERSION), Error,
      MessageMatches(ContainsSubstring("has version 7.3 of the interface, and this program needs 0.x")));
}

TEST_CASE("options have the bytes of XLA's message", "[pjrt]") {
  const std::string bytes = to_bytes({.replicas = 2, .flags = {{"f", true}}});
  const std::string expected(
      "\x1a\x1b"                                          // field 3
      "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"      // device_ordinal -1
      "\x20\x02\x28\x01"                                  // replicas, partitions
      "\x4a\x0a\x08\x02\x10\x01\x1a\x04\x0a\x02\x00\x01"  // device assignment
      "\x3a\x07\x0a\x01\x66\x12\x02\x10\x01",             // flag f = true
      29 + 9);
  CHECK(bytes == expected);
}
