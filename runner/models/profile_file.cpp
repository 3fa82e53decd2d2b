#include "runner/models/profile_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "runner/base/descriptor.hpp"
#include "runner/base/remove_oldest.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr const char* extension = ".profiles";
constexpr uintmax_t most_bytes = uintmax_t{64} << 20;  ///< of one file, and of all

}  // namespace

ProfileFile::ProfileFile(const std::filesystem::path& folder, const std::string& about)
    : path_(folder / (xxh3_hex(about) + extension)) {}

KnownProfiles ProfileFile::read() const {
  KnownProfiles known;
  std::error_code missing;
  if (const auto bytes = std::filesystem::file_size(path_, missing); missing || bytes > most_bytes) return known;
  std::filesystem::last_write_time(path_, std::filesystem::file_time_type::clock::now(), missing);  // it is used
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    if (line.empty()) continue;
    try {
      const auto one = json::parse(line);
      known[one.at("question").dump()] = std::make_shared<const BlockProfiles>(profiles_from(one.at("answer")));
    } catch (const std::exception&) {  // damaged: asked again
    }
  }
  return known;
}

void ProfileFile::add(const std::string& question, const json& answer) const {
  std::error_code ignored;
  const auto folder = path_.parent_path();
  if (std::filesystem::create_directories(folder, ignored); !std::filesystem::exists(path_, ignored))
    remove_oldest(folder, extension, most_bytes);
  // The line before may have been cut off by a full disk.
  const auto text = "\n" + json{{"question", json::parse(question)}, {"answer", answer}}.dump() + "\n";
  const Descriptor file(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (file.is_open()) (void)!::write(file.get(), text.data(), text.size());
}

}  // namespace runner
