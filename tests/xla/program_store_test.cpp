// Which programs of the folder are used again.
#include "strategies/xla/program_store.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "tests/pjrt/run_program.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner::testing {

namespace {

/// A variable of this process, which has its former value again afterwards.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// Stores a small program, or finds it.
class Store {
 public:
  bool compiles() {
    const pjrt::Client client(loaded_cpu_plugin(), {.cpu_devices = 1});
    bool compiled = false;
    const std::string module =
        "module @test {\n  func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
        "    %b = stablehlo.add %a, %a : tensor<2xf32>\n    return %b : tensor<2xf32>\n  }\n}\n";
    const auto found = xla::ProgramStore((folder_.path / "programs").string()).get(client, module, on_replicas(1), [&] {
      compiled = true;
    });
    CHECK(found.stored != compiled);
    CHECK(found.problem.empty());
    return compiled;
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path / name) << text;
    return (folder_.path / name).string();
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace

// The flags are XLA's defaults, so other tests of the process compile the same programs.
TEST_CASE("a program is compiled again if the compiler's flags change, also in a file that the variable names",
          "[xla][store]") {
  for (const char* name : {"XLA_FLAGS", "LIBTPU_INIT_ARGS"}) {
    INFO(name);
    Store store;
    const auto file = store.write("flags", "--xla_dump_max_hlo_modules=-1\n");
    {
      const Variable flags(name, file);
      CHECK(store.compiles());
      CHECK_FALSE(store.compiles());
      store.write("flags", "--xla_dump_max_hlo_modules=1000\n");
      CHECK(store.compiles());
    }
    {
      const Variable flags(name, "--xla_dump_max_hlo_modules=-1");
      CHECK(store.compiles());
      CHECK_FALSE(store.compiles());
    }
    const Variable flags(name, " --xla_dump_max_hlo_modules=1000");
    CHECK(store.compiles());
  }
}

TEST_CASE("a program for CPUs is compiled again for another number of threads", "[xla][store]") {
  Store store;
  for (const char* threads : {"1", "2"}) {
    const Variable variable("PJRT_NPROC", threads);
    CHECK(store.compiles());
    CHECK_FALSE(store.compiles());
  }
}

}  // namespace runner::testing
