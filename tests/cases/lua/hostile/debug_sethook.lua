-- ends by: script debug.sethook is not available in the sandbox; `trusted = true` in [hooks] opens it
debug.sethook()
