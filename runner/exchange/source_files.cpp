#include "runner/exchange/source_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <set>

namespace runner {

fs::path clean_path(const fs::path& path) {
  const fs::path clean = fs::absolute(path).lexically_normal();
  return clean.has_filename() ? clean : clean.parent_path();
}

bool before_by_number(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto take_number = [&](std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
    const auto number = text.substr(0, static_cast<size_t>(std::ranges::find_if_not(text, digit) - text.begin()));
    text.remove_prefix(number.size());
    return number;
  };
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (digit(a.front()) && digit(b.front())) {
      const auto left = take_number(a), right = take_number(b);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // differ in zeros before a number only
}

namespace {

class FolderSearch {
 public:
  explicit FolderSearch(const std::function<bool(const fs::path&)>& is_wanted) : is_wanted_(is_wanted) {}

  void search(const fs::path& folder) {
    struct stat info {};
    if (::stat(folder.c_str(), &info) != 0 || !seen_.emplace(info.st_dev, info.st_ino).second) return;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
      std::error_code failed;
      const auto status = fs::status(entry->path(), failed);  // of what a link names
      if (failed) continue;
      if (fs::is_directory(status))
        search(entry->path());
      else if (fs::is_regular_file(status) && is_wanted_(entry->path()))
        found_.push_back(entry->path());
    }
  }

  std::vector<fs::path> sorted() {
    std::ranges::sort(found_, [](const fs::path& a, const fs::path& b) {
      return std::ranges::lexicographical_compare(a, b, [](const fs::path& left, const fs::path& right) {
        return before_by_number(left.native(), right.native());
      });
    });
    return std::move(found_);
  }

 private:
  const std::function<bool(const fs::path&)>& is_wanted_;
  std::set<std::pair<dev_t, ino_t>> seen_;
  std::vector<fs::path> found_;
};

}  // namespace

std::vector<fs::path> files_below(const fs::path& folder, const std::function<bool(const fs::path&)>& is_wanted) {
  FolderSearch search(is_wanted);
  search.search(folder);
  return search.sorted();
}

std::vector<Error> read_each(const std::vector<fs::path>& files, const std::function<void(const fs::path&)>& read) {
  std::vector<Error> errors;
  for (const auto& file : files) {
    try {
      read(file);
    } catch (const Error& error) {
      errors.push_back(error);
    }
  }
  return errors;
}

}  // namespace runner
