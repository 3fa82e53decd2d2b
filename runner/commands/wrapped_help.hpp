// The formatter of --help: no line is wider than the terminal, or than 100 characters where there is none.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace runner {

class WrappedHelp : public CLI::Formatter {
 public:
  WrappedHelp();

  std::string make_option_desc(const CLI::Option* option) const override;
  std::string make_footer(const CLI::App* app) const override;

 private:
  size_t width_;
};

}  // namespace runner
