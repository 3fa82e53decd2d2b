// Opens the module of `runner ui`: the HTTP server and the files of the page. Programs start without them.
#include <dlfcn.h>

#include <filesystem>

#include "runner/base/error.hpp"
#include "runner/base/own_program.hpp"
#include "runner/ui/http.hpp"

namespace runner::ui {

namespace {

const UiModule& open_ui_module() {
  const std::filesystem::path path = beside_program("librunner_ui.so");
  if (!std::filesystem::exists(path))
    throw environment_error("this build has no `runner ui` ({} does not exist); run scripts/setup and build again",
                            path.string());
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw environment_error("cannot load the module of `runner ui`: {}; run scripts/setup", dlerror());
  auto* entry = reinterpret_cast<decltype(&runner_ui_module)>(dlsym(library, "runner_ui_module"));
  if (!entry || entry()->version != UiModule::current_version)
    throw environment_error("{} belongs to another build than this program; build and install both again",
                            path.string());
  return *entry();
}

}  // namespace

const UiModule& load_ui_module() {
  static const UiModule& module = open_ui_module();
  return module;
}

std::string Request::header(const std::string& lower_name) const {
  const auto found = headers.find(lower_name);
  return found == headers.end() ? "" : found->second;
}

std::string Request::parameter(const std::string& name, const std::string& otherwise) const {
  const auto found = query.find(name);
  return found == query.end() ? otherwise : found->second;
}

}  // namespace runner::ui
