// Opens the Parquet module.
#include <dlfcn.h>
#include <filesystem>

#include "runner/base/error.hpp"
#include "runner/base/own_program.hpp"
#include "runner/parquet/module.hpp"

namespace runner {

namespace {

const ParquetModule& open_parquet_module() {
  const std::filesystem::path path = beside_program("librunner_parquet.so");
  if (!std::filesystem::exists(path))
    throw environment_error(
        "this build cannot read Parquet files ({} does not exist); run scripts/setup --parquet and build again",
        path.string());
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw environment_error("cannot load the Parquet module: {}; run scripts/setup --parquet", dlerror());
  auto* entry = reinterpret_cast<decltype(&runner_parquet_module)>(dlsym(library, "runner_parquet_module"));
  if (!entry || entry()->version != ParquetModule::current_version)
    throw environment_error("{} belongs to another build than this program; build and install both again",
                            path.string());
  return *entry();
}

}  // namespace

const ParquetModule& load_parquet_module() {
  static const ParquetModule& module = open_parquet_module();
  return module;
}

}  // namespace runner
