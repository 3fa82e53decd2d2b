-- ends by: script debug.getregistry is not available in the sandbox; `trusted = true` in [hooks] allows it
return debug.getregistry()
