-- ends by: script io.open is not available in the sandbox; `trusted = true` in [hooks] opens it
return io.open("x")
