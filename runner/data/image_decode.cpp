// Decoding of JPEG and PNG files (read_image).
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <memory>

#include <jerror.h>
#include <jpeglib.h>
#include <png.h>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/data/image.hpp"

namespace runner {

namespace {

using Bytes = std::span<const std::byte>;

const unsigned char* data_of(Bytes bytes) { return reinterpret_cast<const unsigned char*>(bytes.data()); }

constexpr const char* too_many_pixels = "it has more than 178956970 pixels";

bool too_large(int64_t width, int64_t height) { return height > image_pixels_max / width; }

/// `decoding`: bytes that are needed besides the pixels until they are complete.
SharedMemoryLimit::Part memory_for(int64_t width, int64_t height, int64_t decoding) {
  const int64_t pixels = 3 * width * height, copy = pixels;
  return memory_of_images().take(pixels + std::max(decoding, copy));
}

[[noreturn]] void damaged(const std::string& path, const std::string& reason) {
  throw DamagedImage(ExitCode::usage, fmt::format("{}: the image is damaged: {}", path, reason));
}

/// libjpeg's errors jump out of its functions: no object with a destructor may be made between setjmp and the jump.
struct JpegErrors {
  jpeg_error_mgr manager = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf jump = {};
  char message[JMSG_LENGTH_MAX] = {};

  JpegErrors() {
    jpeg_std_error(&manager);
    manager.error_exit = [](j_common_ptr info) {
      auto* self = reinterpret_cast<JpegErrors*>(info->err);
      info->err->format_message(info, self->message);
      std::longjmp(self->jump, 1);
    };
    // Any other warning says that data are missing or wrong.
    manager.emit_message = [](j_common_ptr info, int level) {
      static constexpr int harmless[] = {JWRN_EXTRANEOUS_DATA, JWRN_ADOBE_XFORM, JWRN_JFIF_MAJOR,
                                         JWRN_BOGUS_PROGRESSION};
      if (level < 0 && std::ranges::find(harmless, info->err->msg_code) == std::end(harmless))
        info->err->error_exit(info);
    };
    manager.output_message = [](j_common_ptr) {};
    progress.progress_monitor = [](j_common_ptr info) {  // each scan costs time for all pixels
      if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= 1000) return;
      auto* self = reinterpret_cast<JpegErrors*>(info->err);
      std::strcpy(self->message, "it has more than 1000 scans");
      std::longjmp(self->jump, 1);
    };
  }
};

/// Converts a row of CMYK, stored inverted as Adobe does it, or plain.
void cmyk_to_rgb(const uint8_t* from, uint8_t* to, int64_t width, bool inverted) {
  for (int64_t x = 0; x < width; ++x, from += 4, to += 3) {
    const int k = inverted ? from[3] : 255 - from[3];  // 255 - black
    for (int c = 0; c < 3; ++c) {
      const int ink = inverted ? 255 - from[c] : from[c];
      const int product = ink * k + 128;  // rounded division by 255
      to[c] = static_cast<uint8_t>(std::max(0, k - ((product + (product >> 8)) >> 8)));
    }
  }
}

/// A file with several scans keeps the coefficients of all pixels, 2 bytes each, in whole blocks.
int64_t coefficient_bytes(jpeg_decompress_struct& info) {
  constexpr int64_t largest_block = 32;
  const auto whole = [](int64_t side) { return (side + largest_block - 1) / largest_block * largest_block; };
  if (!jpeg_has_multiple_scans(&info)) return 0;
  return 2 * info.num_components * whole(info.image_width) * whole(info.image_height);
}

/// False after an error, which is in `errors`.
bool decode_jpeg(Bytes bytes, jpeg_decompress_struct& info, JpegErrors& errors, DecodedImage& image,
                 std::vector<uint8_t>& row) {
  if (setjmp(errors.jump)) return false;
  jpeg_mem_src(&info, data_of(bytes), static_cast<unsigned long>(bytes.size()));
  jpeg_read_header(&info, TRUE);
  if (too_large(info.image_width, info.image_height)) {  // before anything of its size is allocated
    std::strcpy(errors.message, too_many_pixels);
    return false;
  }
  image.memory = memory_for(info.image_width, info.image_height, coefficient_bytes(info));
  info.progress = &errors.progress;
  const bool cmyk = info.num_components == 4;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
  image.width = info.output_width;
  image.height = info.output_height;
  image.pixels.resize(static_cast<size_t>(image.width * image.height * 3));
  row.resize(static_cast<size_t>(image.width) * 4);
  while (info.output_scanline < info.output_height) {
    uint8_t* to =
        image.pixels.data() + static_cast<size_t>(info.output_scanline) * static_cast<size_t>(image.width) * 3;
    JSAMPROW target = cmyk ? row.data() : to;
    jpeg_read_scanlines(&info, &target, 1);
    if (cmyk) cmyk_to_rgb(row.data(), to, image.width, info.saw_Adobe_marker);
  }
  jpeg_finish_decompress(&info);
  return true;
}

DecodedImage read_jpeg(const std::string& path, Bytes bytes) {
  JpegErrors errors;
  jpeg_decompress_struct info = {};
  info.err = &errors.manager;
  jpeg_create_decompress(&info);
  DecodedImage image;
  std::vector<uint8_t> row;
  const bool done = decode_jpeg(bytes, info, errors, image, row);
  jpeg_destroy_decompress(&info);
  if (!done) damaged(path, errors.message);
  return image;
}

struct PngSource {
  Bytes bytes;
  size_t at = 0;
  std::string message = {};
};

bool decode_png(png_structp png, png_infop info, DecodedImage& image, std::vector<png_bytep>& rows) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_read_info(png, info);
  const auto color = png_get_color_type(png, info);
  png_set_strip_16(png);
  if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  if (color == PNG_COLOR_TYPE_GRAY && png_get_bit_depth(png, info) < 8) png_set_expand_gray_1_2_4_to_8(png);
  if (!(color & PNG_COLOR_MASK_COLOR)) png_set_gray_to_rgb(png);
  png_set_strip_alpha(png);
  png_set_interlace_handling(png);
  png_read_update_info(png, info);
  image.width = png_get_image_width(png, info);
  image.height = png_get_image_height(png, info);
  if (too_large(image.width, image.height)) png_error(png, too_many_pixels);
  image.memory = memory_for(image.width, image.height, /*decoding=*/0);
  image.pixels.resize(static_cast<size_t>(image.width * image.height * 3));
  rows.resize(static_cast<size_t>(image.height));
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = image.pixels.data() + y * static_cast<size_t>(image.width) * 3;
  png_read_image(png, rows.data());
  png_read_end(png, nullptr);
  return true;
}

DecodedImage read_png(const std::string& path, Bytes bytes) {
  PngSource source{.bytes = bytes};
  const auto fail = [](png_structp png, png_const_charp message) {
    static_cast<PngSource*>(png_get_error_ptr(png))->message = message;
    png_longjmp(png, 1);
  };
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, fail, [](png_structp, png_const_charp) {});
  png_infop info = png_create_info_struct(png);
  png_set_read_fn(png, &source, [](png_structp reader, png_bytep to, png_size_t count) {
    auto& from = *static_cast<PngSource*>(png_get_io_ptr(reader));
    if (count > from.bytes.size() - from.at) png_error(reader, "the file ends too early");
    std::memcpy(to, from.bytes.data() + from.at, count);
    from.at += count;
  });
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // texts and profiles are skipped, not kept
  DecodedImage image;
  std::vector<png_bytep> rows;
  const bool done = decode_png(png, info, image, rows);
  png_destroy_read_struct(&png, &info, nullptr);
  if (!done) damaged(path, source.message);
  return image;
}

}  // namespace

SharedMemoryLimit::Part SharedMemoryLimit::take(int64_t bytes) {
  bytes = std::clamp<int64_t>(bytes, 0, bytes_);
  std::unique_lock lock(mutex_);
  const uint64_t ticket = last_ticket_++;
  changed_.wait(lock, [&] { return served_ == ticket && bytes <= bytes_ - used_; });
  ++served_;
  used_ += bytes;
  changed_.notify_all();  // the next one may fit, too
  return {this, bytes};
}

void SharedMemoryLimit::give_back(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  used_ -= bytes;
  changed_.notify_all();
}

SharedMemoryLimit& memory_of_images() {
  static SharedMemoryLimit memory(images_in_memory_bytes_max);
  return memory;
}

DecodedImage read_image(const std::string& path) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const auto begins = [&](std::string_view magic) {
    return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
  };
  if (begins("\xFF\xD8\xFF")) return read_jpeg(path, bytes);
  if (begins("\x89PNG\r\n\x1A\n")) return read_png(path, bytes);
  if (bytes.empty()) damaged(path, "the file is empty");
  throw DamagedImage(ExitCode::usage, fmt::format("{} is neither a JPEG nor a PNG file", path));
}

bool is_image_name(const std::string& name) {
  const auto small = lower(name);
  return small.ends_with(".jpg") || small.ends_with(".jpeg") || small.ends_with(".png");
}

}  // namespace runner
