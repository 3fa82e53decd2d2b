// Opens the Parquet module.
#include "runner/base/own_program.hpp"
#include "runner/parquet/module.hpp"

namespace runner {

const ParquetModule& load_parquet_module() {
  static const auto& module = open_module<ParquetModule>({.file = "librunner_parquet.so",
                                                          .function = "runner_parquet_module",
                                                          .lack = "cannot read Parquet files",
                                                          .title = "the Parquet module",
                                                          .setup = "scripts/setup --parquet"});
  return module;
}

}  // namespace runner
