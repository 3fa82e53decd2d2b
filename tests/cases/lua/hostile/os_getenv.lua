-- ends by: script os.getenv is not available in the sandbox; `trusted = true` in [hooks] allows it
return os.getenv("HOME")
