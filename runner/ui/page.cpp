#include "runner/ui/page.hpp"

#include <zlib.h>

#include "runner/base/error.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ui/guard.hpp"

namespace runner::ui {

namespace {

std::string type_of(std::string_view name) {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/html; charset=utf-8";
}

std::string unpacked(std::string_view gzip) {
  std::string text;
  z_stream stream{};
  constexpr int gzip_format = 16 + MAX_WBITS;
  RUNNER_CHECK(inflateInit2(&stream, gzip_format) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(gzip.data()));
  stream.avail_in = static_cast<uInt>(gzip.size());
  int result = Z_OK;
  while (result == Z_OK) {
    char piece[16384];
    stream.next_out = reinterpret_cast<Bytef*>(piece);
    stream.avail_out = sizeof piece;
    result = inflate(&stream, Z_NO_FLUSH);
    text.append(piece, sizeof piece - stream.avail_out);
  }
  inflateEnd(&stream);
  RUNNER_CHECK(result == Z_STREAM_END);
  return text;
}

bool accepts_gzip(const Request& request) {
  return request.header("accept-encoding").find("gzip") != std::string::npos;
}

}  // namespace

Page::Page(const std::vector<Asset>& assets) {
  std::string all;
  for (const auto& asset : assets) all += std::string(asset.name) + '\0' + std::string(asset.gzip);
  hash_ = xxh3_hex(all).substr(0, 16);
  for (const auto& asset : assets) {
    if (asset.name == "index.html")
      index_ = unpacked(asset.gzip);
    else
      files_[std::string(asset.name)] = {.type = type_of(asset.name), .gzip = asset.gzip};
  }
  const std::string mark = "{{static}}";
  for (size_t at = index_.find(mark); at != std::string::npos; at = index_.find(mark, at))
    index_.replace(at, mark.size(), "/static/" + hash_);
  index_tag_ = "\"" + hash_ + "\"";
}

Response Page::answer(const Request& request) const {
  const std::string folder = "/static/" + hash_ + "/";
  if (request.path.starts_with("/static/")) {
    const auto file = request.path.starts_with(folder) ? files_.find(request.path.substr(folder.size())) : files_.end();
    if (file == files_.end()) return error_response(404, "there is no such file");
    Response response{
        .type = file->second.type,
        .headers = {{"Cache-Control", "public, max-age=31536000, immutable"}, {"Vary", "Accept-Encoding"}}};
    if (accepts_gzip(request)) {
      response.headers.emplace_back("Content-Encoding", "gzip");
      response.body = file->second.gzip;
    } else {
      response.body = unpacked(file->second.gzip);
    }
    return response;
  }
  Response response{.type = type_of("index.html"), .headers = {{"ETag", index_tag_}, {"Cache-Control", "no-cache"}}};
  if (request.header("if-none-match") == index_tag_)
    response.status = 304;
  else
    response.body = index_;
  return response;
}

}  // namespace runner::ui
