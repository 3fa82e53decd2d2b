#include "runner/lua/compiled_library.hpp"

#include <cstring>
#include <memory>

#include "runner/base/error.hpp"
#include "runner/lua/machine.hpp"
#include "runner/lua/shipped.hpp"

namespace runner::lua {

const std::string& compiled_library() {
  static const std::string code = [] {
    const std::unique_ptr<lua_State, decltype(&lua_close)> compiler(luaL_newstate(), lua_close);
    std::string text;
    const auto append = [](lua_State*, const void* piece, size_t size, void* out) {
      static_cast<std::string*>(out)->append(static_cast<const char*>(piece), size);
      return 0;
    };
    lua_State* lua = compiler.get();
    RUNNER_CHECK(lua && luaL_loadbufferx(lua, library_text, std::strlen(library_text), "=library", "t") == LUA_OK &&
                 lua_dump(lua, append, &text, /*strip=*/1) == 0);
    return text;
  }();
  return code;
}

}  // namespace runner::lua
