-- ends by: script io.open is not available in the sandbox; `trusted = true` in [hooks] allows it
return io.open("x")
