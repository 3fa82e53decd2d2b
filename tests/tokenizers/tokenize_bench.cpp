// Times encoding: bench_tokenize TOKENIZER TEXT SECONDS. Prints the megabytes per second of the best pass over the text, which is
// encoded line by line (and the number of tokens), on one thread. scripts/bench/tokenize compares it with the tokenizers library.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "runner/base/clock.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"

int main(int count, char** arguments) {
  using namespace runner;
  if (count != 4) return 2;
  const auto tokenizer = open_tokenizer_file(arguments[1]);
  const auto text = read_file(arguments[2]);
  std::vector<std::string_view> lines;
  for (std::string_view rest = text; !rest.empty();) {
    // Paragraphs of about 4 KiB: a call has a cost, and documents are longer than lines.
    size_t end = std::min<size_t>(rest.size(), 4096);
    if (const auto line_end = rest.find('\n', end); line_end != std::string_view::npos)
      end = line_end + 1;
    else
      end = rest.size();
    lines.push_back(rest.substr(0, end));
    rest.remove_prefix(end);
  }
  double best = 1e9;
  size_t tokens = 0;
  const double begun = steady_seconds();
  do {
    const double start = steady_seconds();
    tokens = 0;
    for (auto line : lines) tokens += tokenizer->encode(line).size();
    best = std::min(best, steady_seconds() - start);
  } while (steady_seconds() - begun < std::stod(arguments[3]));
  std::puts(fmt::format("{:.3f} {}", static_cast<double>(text.size()) / 1e6 / best, tokens).c_str());
}
