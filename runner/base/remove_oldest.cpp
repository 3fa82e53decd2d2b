#include "runner/base/remove_oldest.hpp"

#include <algorithm>
#include <functional>
#include <vector>

namespace runner {

namespace fs = std::filesystem;

void remove_oldest(const fs::path& folder, const std::string& extension, uintmax_t most_bytes) {
  std::vector<std::pair<fs::file_time_type, fs::directory_entry>> files;
  std::error_code gone;  // another process may remove files, too
  for (const auto& file : fs::directory_iterator(folder, gone))
    if (file.path().extension() == extension) files.emplace_back(file.last_write_time(gone), file);
  std::ranges::sort(files, std::greater(), &decltype(files)::value_type::first);
  uintmax_t bytes = 0;
  for (const auto& [used, file] : files) {
    const auto size = file.file_size(gone);
    bytes += gone ? 0 : size;
    if (bytes > most_bytes) fs::remove(file.path(), gone);
  }
}

}  // namespace runner
