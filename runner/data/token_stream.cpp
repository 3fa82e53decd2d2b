#include "runner/data/token_stream.hpp"

#include <algorithm>
#include <bit>

#include "runner/base/error.hpp"

namespace runner {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and read in place");

TokenFile::TokenFile(const fs::path& path, size_t header_bytes, size_t item_bytes)
    : map_(path),
      header_bytes_(header_bytes),
      item_bytes_(item_bytes),
      size_(static_cast<int64_t>((map_.bytes().size() - header_bytes) / item_bytes)) {
  RUNNER_CHECK((map_.bytes().size() - header_bytes) % item_bytes == 0);
}

void TokenFile::check_all() {
  check(0, size_);
  checked_ = true;
}

void TokenFile::read(int64_t first, std::span<int64_t> out) const {
  RUNNER_CHECK(first >= 0 && first + std::ssize(out) <= size_);
  if (!checked_) check(first, std::ssize(out));
  auto copy = [&](auto all) { std::ranges::copy(all.subspan(static_cast<size_t>(first), out.size()), out.begin()); };
  switch (item_bytes_) {
    case 1:
      return copy(items<uint8_t>());
    case 2:
      return copy(items<uint16_t>());
    default:
      return copy(items<uint32_t>());
  }
}

TokenStream::TokenStream(std::vector<std::unique_ptr<TokenFile>> files) : files_(std::move(files)) {
  RUNNER_CHECK(!files_.empty());
  int64_t end = 0;
  size_t checked_bytes = 0;
  for (const auto& file : files_) {
    if (checked_bytes + file->bytes() <= checked_at_open_bytes_max) {
      file->check_all();
      checked_bytes += file->bytes();
    }
    ends_.push_back(end += file->size());
  }
}

std::string TokenStream::describe() const {
  return files_.size() == 1 ? files_[0]->path().string() : fmt::format("{} files", files_.size());
}

template <typename Use>
void TokenStream::for_each_file(int64_t first, std::span<int64_t> out, Use&& use) const {
  RUNNER_CHECK(first >= 0 && first + std::ssize(out) <= size());
  auto index = static_cast<size_t>(std::ranges::upper_bound(ends_, first) - ends_.begin());
  while (!out.empty()) {
    int64_t begin = index == 0 ? 0 : ends_[index - 1];
    auto count = static_cast<size_t>(std::min<int64_t>(std::ssize(out), ends_[index] - first));
    use(*files_[index], first - begin, out.first(count));
    out = out.subspan(count);
    first += static_cast<int64_t>(count);
    ++index;
  }
}

void TokenStream::read(int64_t first, std::span<int64_t> out) const {
  for_each_file(first, out, [](const TokenFile& file, int64_t begin, auto part) { file.read(begin, part); });
}

bool TokenStream::all_supervised() const {
  return std::ranges::all_of(files_, [](const auto& file) { return file->all_supervised(); });
}

void TokenStream::ignore_unsupervised(int64_t first, std::span<int64_t> targets) const {
  for_each_file(first, targets,
                [](const TokenFile& file, int64_t begin, auto part) { file.ignore_unsupervised(begin, part); });
}

TokenStream::Place TokenStream::place_of(int64_t position) const {
  RUNNER_CHECK(position >= 0 && position <= size());
  const auto file = static_cast<size_t>(std::ranges::upper_bound(ends_, position) - ends_.begin());
  if (file == ends_.size()) return {.file = file, .token = 0};
  return {.file = file, .token = position - (file == 0 ? 0 : ends_[file - 1])};
}

}  // namespace runner
