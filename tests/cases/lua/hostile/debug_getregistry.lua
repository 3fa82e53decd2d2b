-- ends by: script debug.getregistry is not available in the sandbox; `trusted = true` in [hooks] opens it
return debug.getregistry()
