// Images in host memory: decoding of JPEG and PNG files in a limited amount of memory, and resizing as Pillow does it.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runner/base/error.hpp"

namespace runner {

/// The content of an image file cannot be decoded. Other errors, such as a file that cannot be opened, may pass.
class DamagedImage : public Error {
 public:
  using Error::Error;
};

/// An amount of memory that threads share: a thread waits until its part is free.
class SharedMemoryLimit {
 public:
  /// A part of the memory, until it is destroyed.
  class Part {
   public:
    Part() = default;
    Part(Part&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)), bytes_(other.bytes_) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Part() {
      if (owner_) owner_->give_back(bytes_);
    }

   private:
    friend SharedMemoryLimit;
    Part(SharedMemoryLimit* owner, int64_t bytes) : owner_(owner), bytes_(bytes) {}
    SharedMemoryLimit* owner_ = nullptr;
    int64_t bytes_ = 0;
  };

  explicit SharedMemoryLimit(int64_t bytes) : bytes_(bytes) {}
  /// Waits until `bytes` are free, in the order of the calls. A part that is larger than all of the memory gets all of
  /// it. A thread must not wait while it has a part.
  Part take(int64_t bytes);

 private:
  void give_back(int64_t bytes);
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t bytes_, used_ = 0;
  uint64_t last_ticket_ = 0, served_ = 0;
};

/// Pixels of 8 bits for each of red, green and blue: [height, width, 3].
struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> pixels = {};
};

/// An image with its part of memory_of_images().
struct DecodedImage : Image {
  SharedMemoryLimit::Part memory = {};
};

/// The memory of all images that are decoded and not yet destroyed, on all threads: images_in_memory_bytes_max (limits.hpp). It counts what
/// an image needs while it is decoded, and one copy of its pixels.
SharedMemoryLimit& memory_of_images();

/// Decodes a JPEG (libjpeg-turbo) or PNG file (libpng) to RGB, with the pixels of Pillow's Image.open(path).convert("RGB"):
/// grey values are repeated, palettes are looked up, CMYK is converted without a colour profile, an alpha channel is left out, and of
/// samples with 16 bits the upper 8 are taken. An EXIF rotation is not applied. At most image_pixels_max (limits.hpp), and 1000 scans
/// of a progressive file. Waits until memory_of_images() has room; a thread keeps only one such image. Throws DamagedImage with path and
/// reason for a damaged or truncated file and for another kind of file, and Error(environment) for a file that cannot be opened.
DecodedImage read_image(const std::string& path);

/// Names of files that read_image() reads end with one of these, in any case: .jpg, .jpeg, .png.
bool is_image_name(const std::string& name);

/// The part of an image that becomes the result: [left, left + width) x [top, top + height).
struct ImageBox {
  int64_t left = 0, top = 0, width = 0, height = 0;
};

enum class Interpolation { bilinear, bicubic };

/// Crops to the box and resizes to width x height, with antialiasing: the filter is widened by the scale. The pixels are those of
/// Pillow's image.crop(box).resize((width, height), ...): rows and columns one after the other, each rounded to 8 bits, with
/// weights of 22 bits (libImaging/Resample.c). With `part`, only that part of the result is made, from the pixels that it needs.
Image crop_and_resize(const Image& image, const ImageBox& box, int64_t width, int64_t height,
                      Interpolation interpolation, const std::optional<ImageBox>& part = std::nullopt);

}  // namespace runner
