// The files of the page: one HTML, one CSS, modules, ECharts.
#pragma once
#include <map>
#include <string>

#include "runner/ui/http.hpp"

namespace runner::ui {

/// index.html is at every path outside /api and /static, because each view of the page has a path of its own. The other files are below
/// /static/HASH/, where HASH depends on their content: browsers keep them forever.
class Page {
 public:
  explicit Page(const std::vector<Asset>& assets);
  Response answer(const Request& request) const;

 private:
  struct File {
    std::string type;
    std::string_view gzip;
  };
  std::string hash_, index_, index_tag_;
  std::map<std::string, File, std::less<>> files_;
};

}  // namespace runner::ui
