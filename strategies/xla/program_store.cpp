#include "strategies/xla/program_store.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/remove_oldest.hpp"
#include "runner/base/xxh3.hpp"

namespace runner::xla {

namespace {

/// The compiler divides loops among the threads of XLA's pool on CPU, which have this number.
std::string threads_of_host() {
  const char* const given = std::getenv("PJRT_NPROC");
  return given ? given : "";
}

/// A program for CPUs uses instructions of the machine that compiled it, and several machines may share the folder.
std::string instructions_of_host() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);)
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  return "";
}

/// The compiler's flags in a variable. XLA reads them from a file if the value does not begin with a dash.
std::string flags_in(const char* variable) {
  const char* const given = std::getenv(variable);
  const std::string value = given ? given : "";
  const auto begin = value.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || value[begin] == '-') return value;
  std::ifstream file(value);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The key of a compiled program: a hash of all that it depends on. A plug-in that reads a program of another plug-in may end the process,
/// and not all say which version they have, so the library itself is part of it.
std::string key_of(const pjrt::Client& client, const std::string& module, const pjrt::CompileOptions& options) {
  const std::string host = client.platform() == "cpu" ? instructions_of_host() + "\n" + threads_of_host() : "";
  return xxh3_hex(fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}", client.platform(), client.identity(), host,
                              flags_in("XLA_FLAGS"), flags_in("LIBTPU_INIT_ARGS"), pjrt::to_bytes(options), module));
}

// A file begins with the checksum of the rest, because a plug-in that reads a damaged program may end the process.
constexpr size_t checksum_digits = 32;

std::string read_program(const std::filesystem::path& path) {
  std::string bytes = read_file(path);
  if (bytes.size() < checksum_digits ||
      xxh3_hex(std::string_view(bytes).substr(checksum_digits)) != bytes.substr(0, checksum_digits))
    throw environment_error("the file is damaged");
  return bytes.substr(checksum_digits);
}

void write_program(const std::filesystem::path& path, const std::string& program) {
  std::error_code failed;
  std::filesystem::create_directories(path.parent_path(), failed);
  if (failed) throw environment_error("cannot make the folder {}: {}", path.parent_path().string(), failed.message());
  write_file_atomic(path, xxh3_hex(program) + program);
  constexpr uintmax_t most_bytes = uintmax_t{4} << 30;
  remove_oldest(path.parent_path(), ".program", most_bytes);
}

}  // namespace

ProgramStore::Found ProgramStore::get(const pjrt::Client& client, const std::string& module,
                                      const pjrt::CompileOptions& options,
                                      const std::function<void()>& compiles) const {
  if (folder_.empty()) {
    compiles();
    return {.program = client.compile(module, options)};
  }
  const auto path = std::filesystem::path(folder_) / (key_of(client, module, options) + ".program");
  std::string problem;
  std::error_code missing;
  if (std::filesystem::exists(path, missing)) try {
      std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), missing);
      return {.program = client.load(read_program(path), options), .stored = true};
    } catch (const Error& error) {
      problem = fmt::format("{}: {}; the program is compiled again", path.string(), error.what());
    }
  compiles();
  Found made{.program = client.compile(module, options), .problem = problem};
  std::string bytes;
  try {
    bytes = made.program.serialized();
  } catch (const Error&) {  // a plug-in need not be able to
    return made;
  }
  try {
    write_program(path, bytes);
  } catch (const Error& error) {
    made.problem = fmt::format("{}; the compiled program is not kept", error.what());
  }
  return made;
}

}  // namespace runner::xla
